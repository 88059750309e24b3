// Damaged templates: whatever is in them, parsing and rendering end in text or an error, soon.
#pragma once

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/json_text.h"
#include "text/jinja/template.h"

namespace spry {

// What templates are made of, whole or broken.
inline constexpr std::string_view kTemplatePieces[] = {"{%",
                                                       "%}",
                                                       "{{",
                                                       "}}",
                                                       "{#",
                                                       "#}",
                                                       "(",
                                                       ")",
                                                       "[",
                                                       "]",
                                                       "{",
                                                       "}",
                                                       "|",
                                                       ".",
                                                       ",",
                                                       "'",
                                                       "\"",
                                                       "-",
                                                       "**",
                                                       "//",
                                                       "~",
                                                       " if ",
                                                       " else ",
                                                       " is ",
                                                       " not",
                                                       " in ",
                                                       " for ",
                                                       "\\",
                                                       "\n",
                                                       " loop",
                                                       ".items()",
                                                       "|length",
                                                       "|map",
                                                       "|sort",
                                                       "|tojson",
                                                       "range(9)",
                                                       "99999999",
                                                       "[::-1]",
                                                       "namespace",
                                                       " * 99999",
                                                       "%d",
                                                       "caller()",
                                                       "\xFF",
                                                       "\xC3",
                                                       "endfor",
                                                       "endif",
                                                       "recursive",
                                                       "break",
                                                       "l",
                                                       "d",
                                                       "s",
                                                       "none",
                                                       "{% set ns = namespace(x=[]) %}"};

class TemplateMutator {
 public:
  TemplateMutator(uint32_t seed, const std::vector<std::string>& templates)
      : random_(seed), templates_(templates) {}

  std::string operator()() {
    std::string text = Any();
    for (uint32_t rounds = 1 + random_() % 6; rounds > 0; --rounds) Mutate(text);
    return text;
  }

 private:
  const std::string& Any() { return templates_[random_() % templates_.size()]; }

  void Mutate(std::string& text) {
    const size_t at = random_() % (text.size() + 1);
    const size_t length = std::min<size_t>(random_() % 30, text.size() - at);
    switch (random_() % 6) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, text.substr(at, length)); break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random_());
        break;
      case 3: {
        const std::string& other = Any();
        const size_t from = random_() % (other.size() + 1);
        text.insert(at, other, from, random_() % 60);
        break;
      }
      default: text.insert(at, kTemplatePieces[random_() % std::size(kTemplatePieces)]);
    }
  }

  std::mt19937 random_;
  const std::vector<std::string>& templates_;
};

// Mutations of the committed small templates, `count` of them.
inline void ExpectTemplateMutationsAreHarmless(uint32_t first_seed, int count) {
  const auto folder =
      std::filesystem::path(SPRY_SOURCE_DIR) / "tests" / "golden" / "text" / "jinja";
  std::vector<std::string> templates;
  std::ifstream lines(folder / "expected.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto golden = jinja::ReadJson(line, "the golden");
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    templates.push_back(golden->dict()->Find("template")->text()->bytes);
  }
  ASSERT_GT(templates.size(), 300u);
  std::ifstream file(folder / "variables.json");
  std::ostringstream text;
  text << file.rdbuf();
  const auto variables = jinja::ReadJson(text.str(), "the golden");
  ASSERT_TRUE(variables.ok());
  int rendered = 0;
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::string source = TemplateMutator(first_seed + static_cast<uint32_t>(i), templates)();
    const auto parsed = jinja::Template::Parse(source);
    const Result<std::string> got =
        parsed.ok() ? parsed->Render(*variables->dict(), std::tm{}) : parsed.status();
    if (got.ok()) {
      ++rendered;
      continue;
    }
    ++refused;
    EXPECT_TRUE(got.status().message().starts_with("chat template, line ")) << source;
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument) << got.status().message();
  }
  // Both ways are taken.
  EXPECT_GT(rendered, count / 20);
  EXPECT_GT(refused, count / 20);
}

}  // namespace spry
