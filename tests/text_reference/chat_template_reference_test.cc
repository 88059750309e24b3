// Texts equal to jinja2's, or a refusal where it refuses, for every template of public packages on
// dialogues of all shapes. tools/chat_template_goldens.py makes the data.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja/json_text.h"

namespace spry {
namespace {

using Path = std::filesystem::path;

constexpr int kTemplates = 76;
constexpr int kDialogues = 36;

Path DataFolder() { return Path(SPRY_SOURCE_DIR) / "build" / "test-data" / "chat_templates"; }

std::string ReadFile(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

jinja::Value Json(std::string_view text) {
  auto value = jinja::ReadJson(text, "the test's data");
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? *value : jinja::Value();
}

jinja::Value Field(const jinja::Value& dict, std::string_view name) {
  const jinja::Value* found = dict.dict()->Find(name);
  return found == nullptr ? jinja::Value::None() : *found;
}

bool Flag(const jinja::Value& dict, std::string_view name) {
  const jinja::Value flag = Field(dict, name);
  return flag.is_bool() && flag.as_bool();
}

ChatInput InputOf(const jinja::Value& dialogue) {
  ChatInput input;
  input.messages = Field(dialogue, "messages");
  input.tools = Field(dialogue, "tools");
  input.documents = Field(dialogue, "documents");
  input.add_generation_prompt = Flag(dialogue, "add_generation_prompt");
  input.continue_final_message = Flag(dialogue, "continue_final_message");
  const jinja::Value variables = Field(dialogue, "variables");
  if (variables.dict() != nullptr) input.variables = *variables.dict();
  // As NOW of the script: 2026-11-30 07:04:05, a Monday.
  input.now = std::tm{.tm_sec = 5,
                      .tm_min = 4,
                      .tm_hour = 7,
                      .tm_mday = 30,
                      .tm_mon = 10,
                      .tm_year = 126,
                      .tm_wday = 1,
                      .tm_yday = 333};
  return input;
}

// Where two texts part.
std::string Difference(const std::string& got, const std::string& want) {
  size_t same = 0;
  while (same < got.size() && same < want.size() && got[same] == want[same]) ++same;
  const size_t from = same < 40 ? 0 : same - 40;
  return fmt::format("at byte {} of {} and {}\n got: ...{}\nwant: ...{}", same, got.size(),
                     want.size(), got.substr(from, 120), want.substr(from, 120));
}

// Empty when `got` is what the line of the goldens wants.
std::string Objection(const Result<std::string>& got, const jinja::Value& want) {
  const jinja::Value text = Field(want, "text");
  const jinja::Value raised = Field(want, "raised");
  if (text.text() != nullptr) {
    if (!got.ok()) return "refused: " + got.status().message();
    return *got == text.text()->bytes ? "" : Difference(*got, text.text()->bytes);
  }
  if (got.ok()) return "not refused: " + got->substr(0, 200);
  if (got.status().message().find('\n') != std::string::npos) return "an error of several lines";
  if (raised.text() == nullptr) return "";
  std::string says = raised.text()->bytes;
  std::ranges::replace(says, '\n', ' ');
  const bool same = got.status().message().find(says) != std::string::npos;
  return same ? "" : "another refusal: " + got.status().message();
}

TEST(ChatTemplateReference, TextsEqualJinja2s) {
  ASSERT_TRUE(std::filesystem::exists(DataFolder() / "stamp"))
      << "no data in " << DataFolder() << "; make it with tools/chat_template_goldens.py";
  const jinja::Value dialogues = Json(ReadFile(DataFolder() / "dialogues.json"));
  ASSERT_TRUE(dialogues.is_list());
  ASSERT_EQ(dialogues.sequence()->items.size(), static_cast<size_t>(kDialogues));
  int templates = 0;
  int equal = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DataFolder())) {
    if (entry.path().extension() != ".jinja") continue;
    ++templates;
    const std::string name = entry.path().stem();
    ChatTemplateSource source;
    source.text = ReadFile(entry.path());
    source.special_tokens = {{"bos_token", "<s>"},
                             {"eos_token", "</s>"},
                             {"unk_token", "<unk>"},
                             {"pad_token", "<pad>"}};
    const auto chat = ChatTemplate::Create(source);
    std::ifstream lines(DataFolder() / (name + ".jsonl"));
    size_t index = 0;
    for (std::string line; std::getline(lines, line); ++index) {
      const jinja::Value& dialogue = dialogues.sequence()->items.at(index);
      const Result<std::string> got = chat.ok() ? chat->Render(InputOf(dialogue)) : chat.status();
      const std::string objection = Objection(got, Json(line));
      if (objection.empty()) {
        ++equal;
      } else {
        ADD_FAILURE() << name << ", " << Field(dialogue, "name").text()->bytes << ": " << objection;
      }
    }
    EXPECT_EQ(index, static_cast<size_t>(kDialogues)) << name;
  }
  EXPECT_EQ(templates, kTemplates);
  RecordProperty("equal", equal);
  fmt::print("{} of {} renderings equal, {} templates\n", equal, templates * kDialogues, templates);
}

}  // namespace
}  // namespace spry
