// What jinja2 makes of small templates, each for something that Jinja or Python has a rule for.
// tools/chat_template_goldens.py --cases writes what is expected.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "text/jinja/json_text.h"
#include "text/jinja/template.h"

namespace spry::jinja {
namespace {

std::filesystem::path Folder() {
  return std::filesystem::path(SPRY_SOURCE_DIR) / "tests" / "golden" / "text" / "jinja";
}

Value Json(std::string_view text) {
  auto value = ReadJson(text, "the golden");
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? *value : Value::Of(std::make_shared<const Dict>());
}

const Text* Field(const Value& dict, std::string_view name) {
  const Value* found = dict.dict()->Find(name);
  return found == nullptr ? nullptr : found->text();
}

TEST(JinjaCases, GiveWhatJinja2Gives) {
  std::ifstream variables_file(Folder() / "variables.json");
  std::ostringstream text;
  text << variables_file.rdbuf();
  const Value variables = Json(text.str());
  // As NOW of the script: Monday, 2026-11-30 07:04:05.
  const std::tm now{.tm_sec = 5,
                    .tm_min = 4,
                    .tm_hour = 7,
                    .tm_mday = 30,
                    .tm_mon = 10,
                    .tm_year = 126,
                    .tm_wday = 1,
                    .tm_yday = 333};
  std::ifstream lines(Folder() / "expected.jsonl");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Value wanted = Json(line);
    SCOPED_TRACE(Field(wanted, "name")->bytes);
    const auto parsed = Template::Parse(Field(wanted, "template")->bytes);
    const Result<std::string> got =
        parsed.ok() ? parsed->Render(*variables.dict(), now) : parsed.status();
    if (const Text* output = Field(wanted, "text")) {
      if (!got.ok()) {
        ADD_FAILURE() << "refused: " << got.status().message() << "\nwanted: " << output->bytes;
      } else {
        EXPECT_EQ(*got, output->bytes);
      }
      continue;
    }
    if (got.ok()) {
      ADD_FAILURE() << "not refused: " << *got << "\n" << line;
      continue;
    }
    const std::string& message = got.status().message();
    EXPECT_TRUE(message.starts_with("chat template, line ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    if (const Text* raised = Field(wanted, "raised")) {
      EXPECT_NE(message.find(raised->bytes), std::string::npos) << message;
    }
  }
  EXPECT_GT(count, 300);
}

}  // namespace
}  // namespace spry::jinja
