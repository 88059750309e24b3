// spry generate from outside, on the null device: whatever it samples is known beforehand.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/app/null_answers.h"
#include "tests/app/program_run.h"

namespace spry {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<json::object> Lines(const std::string& text) {
  std::vector<json::object> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(json::parse(text.substr(at, end - at)).as_object());
    at = end + 1;
  }
  return lines;
}

std::string JoinedIds(const std::vector<int>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

std::vector<int> Ids(const json::object& line) {
  return json::value_to<std::vector<int>>(line.at("token_ids"));
}

class GenerateTest : public ProgramTest {
 protected:
  GenerateTest() { MakeModel("m"); }
  ProgramResult Generate(const std::string& arguments) {
    return Spry("generate m --load-format dummy --device null " + arguments);
  }
};

TEST_F(GenerateTest, JsonLinesComeInTheOrderOfTheInput) {
  WriteText(folder_ / "in.jsonl",
            "{\"prompt_token_ids\": [5, 6, 7], \"max_tokens\": 9}\n\n"
            "{\"prompt_token_ids\": [8], \"max_tokens\": 1}\r\n"
            "{\"prompt_token_ids\": [5, 6, 7]}");
  const ProgramResult r = Generate("--input in.jsonl --json --max-tokens 4");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const std::vector<json::object> lines = Lines(r.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(Ids(lines[0]), Expected({5, 6, 7}, 9));
  EXPECT_EQ(Ids(lines[1]), Expected({8}, 1));
  EXPECT_EQ(Ids(lines[2]), Expected({5, 6, 7}, 4));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[i].at("index"), i);
    EXPECT_EQ(lines[i].at("finish_reason"), "length");
    EXPECT_TRUE(lines[i].at("text").is_null());  // no tokenizer
    EXPECT_EQ(lines[i].at("cached_tokens"), 0);
    EXPECT_FALSE(lines[i].contains("logprobs"));
  }
  EXPECT_EQ(lines[0].at("prompt_tokens"), 3);
  EXPECT_THAT(r.err, HasSubstr("KV cache"));
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
}

TEST_F(GenerateTest, TheStopTokenIsCountedAndTheReasonSaysStop) {
  const std::vector<int> ids = Expected({3}, 3);
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [3], \"stop_token_ids\": [" +
                                      std::to_string(ids[2]) + "], \"logprobs\": 2}");
  const ProgramResult r = Generate("--input in.jsonl --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::object line = Lines(r.out).at(0);
  EXPECT_EQ(Ids(line), ids);
  EXPECT_EQ(line.at("finish_reason"), "stop");
  ASSERT_EQ(line.at("logprobs").as_array().size(), ids.size());
  EXPECT_TRUE(line.at("logprobs").at(0).as_object().contains("logprob"));
  EXPECT_TRUE(line.at("logprobs").at(0).as_object().contains("rank"));
  EXPECT_TRUE(line.at("logprobs").at(0).as_object().contains("top_logprobs"));
}

TEST_F(GenerateTest, ChoicesAreLinesOfTheirOwn) {
  WriteText(folder_ / "in.jsonl",
            "{\"prompt_token_ids\": [5, 6, 7], \"n\": 3, \"max_tokens\": 2}\n"
            "{\"prompt_token_ids\": [8], \"max_tokens\": 1}\n");
  const ProgramResult r = Generate("--input in.jsonl --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const std::vector<json::object> lines = Lines(r.out);
  ASSERT_EQ(lines.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(lines[i].at("index"), i < 3 ? 0 : 1);
    EXPECT_EQ(lines[i].at("choice"), i < 3 ? i : 0);
    EXPECT_EQ(Ids(lines[i]), i < 3 ? Expected({5, 6, 7}, 2) : Expected({8}, 1));
  }
  const ProgramResult text = Generate("--input in.jsonl --n 2");
  const std::string long_answer = JoinedIds(Expected({5, 6, 7}, 2)) + "\n";
  const std::string short_answer = JoinedIds(Expected({8}, 1)) + "\n";
  EXPECT_EQ(text.out, "== in.jsonl:1, answer 1\n" + long_answer + "== in.jsonl:1, answer 2\n" +
                          long_answer + "== in.jsonl:1, answer 3\n" + long_answer +
                          "== in.jsonl:2, answer 1\n" + short_answer + "== in.jsonl:2, answer 2\n" +
                          short_answer);
}

TEST_F(GenerateTest, APromptCanBeScoredAlone) {
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [5, 6, 7], \"prompt_logprobs\": 0}");
  const ProgramResult r = Generate("--input in.jsonl --json --max-tokens 0 --prompt-logprobs 3");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::object line = Lines(r.out).at(0);
  EXPECT_TRUE(line.at("token_ids").as_array().empty());
  EXPECT_EQ(line.at("finish_reason"), "length");
  const json::array& entries = line.at("prompt_logprobs").as_array();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_TRUE(entries[0].is_null());
  EXPECT_EQ(entries[1].at("token_id"), 6);
  EXPECT_EQ(entries[2].at("token_id"), 7);
  EXPECT_EQ(entries[2].at("rank"), 1);
  EXPECT_TRUE(entries[2].at("top_logprobs").as_array().empty());
}

TEST_F(GenerateTest, PrioritiesDecideWhoRunsFirstWhenAsked) {
  WriteText(folder_ / "in.jsonl",
            "{\"prompt_token_ids\": [5], \"priority\": 2}\n"
            "{\"prompt_token_ids\": [6], \"priority\": -1}\n");
  EXPECT_EQ(Generate("--input in.jsonl --json").exit_code, 1);
  const ProgramResult r = Generate("--input in.jsonl --json --scheduling-policy priority");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(Lines(r.out).size(), 2u);
}

// Each bad line gives one message with its place and field, and changes nothing for the others.
TEST_F(GenerateTest, BadLinesLeaveTheirNeighboursAlone) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"prompt_token_ids": [1], "temperature": -1})", "temperature is -1"},
      {R"({"prompt_token_ids": [1], "temperature": 1e999})", "temperature is"},
      {R"({"prompt_token_ids": [1], "top_p": 0})", "top_p is 0"},
      {R"({"prompt_token_ids": [1], "top_p": 1.01})", "top_p is 1.01"},
      {R"({"prompt_token_ids": [1], "min_p": 2})", "min_p is 2"},
      {R"({"prompt_token_ids": [1], "top_k": -2})", "top_k is -2"},
      {R"({"prompt_token_ids": [1], "max_tokens": 0})", "max_tokens is 0"},
      {R"({"prompt_token_ids": [1], "min_tokens": -1})", "min_tokens is -1"},
      {R"({"prompt_token_ids": [1], "min_tokens": 9, "max_tokens": 8})", "min_tokens is 9"},
      {R"({"prompt_token_ids": [1], "logprobs": 21})", "logprobs is 21"},
      {R"({"prompt_token_ids": [1], "logprobs": -1})", "logprobs is -1"},
      {R"({"prompt_token_ids": [1], "prompt_logprobs": 21})", "prompt_logprobs is 21"},
      {R"({"prompt_token_ids": [1], "n": 0})", "n is 0"},
      {R"({"prompt_token_ids": [1], "n": 129})", "n is 129"},
      {R"({"prompt_token_ids": [1], "priority": 1})", "priority is 1"},
      {R"({"prompt_token_ids": [1], "stop_token_ids": [512]})", "stop_token_ids has 512"},
      {R"({"prompt_token_ids": [1], "stop": "end"})", "the model has no tokenizer"},
      {R"({"prompt_token_ids": [1], "seed": "x"})", "seed is \"x\""},
      {R"({"prompt_token_ids": [1], "ignore_eos": 1})", "ignore_eos is 1"},
      {R"({"prompt_token_ids": [512]})", "512"},
      {R"({"prompt_token_ids": [-3]})", "prompt_token_ids[0] is -3"},
      {R"({"prompt_token_ids": []})", "the prompt is empty"},
      {R"({"prompt": "text"})", "no tokenizer"},
      {R"({"prompt": "\ud800"})", "not valid JSON"},
      {R"({"prompt_token_ids": [1)", "not valid JSON"},
      {R"({"unknown": 1})", "unknown field \"unknown\""},
  };
  const std::string good = "{\"prompt_token_ids\": [4, 5], \"max_tokens\": 5}\n";
  std::string too_long = "{\"prompt_token_ids\": [1";
  for (int i = 1; i < 64; ++i) too_long += ",1";
  std::string input = good;
  for (const auto& [line, message] : bad) input += line + "\n" + good;
  input += too_long + "]}\n";
  WriteText(folder_ / "in.jsonl", input);

  const ProgramResult r = Generate("--input in.jsonl --json");
  EXPECT_EQ(r.exit_code, 1);
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_THAT(r.err, HasSubstr("spry: in.jsonl:" + std::to_string(2 * i + 2) + ": "));
    EXPECT_THAT(r.err, HasSubstr(bad[i].second));
  }
  EXPECT_THAT(r.err, HasSubstr("the prompt has 64 tokens"));
  // One line each, and the one with the memory plan.
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), std::ssize(bad) + 2) << r.err;
  const std::vector<json::object> lines = Lines(r.out);
  ASSERT_EQ(lines.size(), bad.size() + 1);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("index"), static_cast<int>(2 * i));
    EXPECT_EQ(Ids(lines[i]), Expected({4, 5}, 5));
  }
}

// No model is there to be loaded.
TEST_F(GenerateTest, MistakesAreToldBeforeTheModelIsLoaded) {
  WriteText(folder_ / "text.jsonl", "The capital of France is\n\n[1, 2]\n");
  const std::string form = R"(; a line is like {"prompt": "Hello", "max_tokens": 8})";
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"--prompt a --min-tokens 9 --max-tokens 8", "--prompt 1: min_tokens is 9"},
           {"--prompt a --max-tokens 0", "--prompt 1: max_tokens is 0"},
           {"--input text.jsonl", "text.jsonl:1: not valid JSON: syntax error at byte 0" + form},
           {"--input text.jsonl", "text.jsonl:3: not a JSON object" + form}}) {
    const ProgramResult r = Spry("generate nowhere " + arguments);
    EXPECT_EQ(r.exit_code, 1) << arguments;
    EXPECT_THAT(r.err, HasSubstr("spry: " + message)) << arguments;
    EXPECT_THAT(r.err, Not(HasSubstr("nowhere"))) << arguments;
  }
  WriteText(folder_ / "model.gguf", std::string("GGUF\0\n\n\n", 8));
  EXPECT_EQ(Spry("generate nowhere --input model.gguf").err,
            "spry: model.gguf: byte 4 is zero, so it is no text; expected JSON lines\n");
  // A byte order mark is no part of the first line.
  WriteText(folder_ / "in.jsonl", "\xEF\xBB\xBF{\"prompt\": \"a\", \"top_p\": 2}\n");
  EXPECT_EQ(Spry("generate nowhere --input in.jsonl").err,
            "spry: in.jsonl:1: top_p is 2; it must be in (0, 1]\n");
  // Its neighbour still wants the model.
  EXPECT_THAT(Spry("generate nowhere --input in.jsonl --prompt a").err,
              HasSubstr("in (0, 1]\nspry: nowhere: "));
  EXPECT_EQ(Spry("chat nowhere --min-tokens 9 --max-tokens 8").err,
            "spry: min_tokens is 9; it must be from 0 to max_tokens\n");
}

TEST_F(GenerateTest, PrefixesAreSharedUnlessSwitchedOff) {
  std::string ids = "[9";
  for (int i = 1; i < 40; ++i) ids += "," + std::to_string(9 + i);
  const std::string line = "{\"prompt_token_ids\": " + ids + "], \"max_tokens\": 1}\n";
  WriteText(folder_ / "in.jsonl", line + line);
  const std::string flags = "--input in.jsonl --json --max-num-seqs 1 ";
  EXPECT_EQ(Lines(Generate(flags).out).at(1).at("cached_tokens"), 32);
  EXPECT_EQ(Lines(Generate(flags + "--no-enable-prefix-caching").out).at(1).at("cached_tokens"), 0);
}

TEST_F(GenerateTest, WithoutATokenizerIdsStandForText) {
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [3], \"max_tokens\": 2}\n");
  const std::vector<int> ids = Expected({3}, 2);
  const ProgramResult r = Generate("--input in.jsonl");
  EXPECT_EQ(r.out, std::to_string(ids[0]) + " " + std::to_string(ids[1]) + "\n");
}

TEST_F(GenerateTest, TextComesFromFlagsFilesAndStdin) {
  AddTokenizer(folder_ / "m");
  WriteText(folder_ / "prompt.txt", "abc\n");
  const std::string expected = Spelled(Expected({0, 1, 2}, 3)) + "\n";
  const std::string flags = " --max-tokens 3";
  EXPECT_EQ(Generate("--prompt abc" + flags).out, expected);
  EXPECT_EQ(Generate("--prompt-file prompt.txt" + flags).out, expected);
  const ProgramResult piped =
      Shell("echo abc | \"$SPRY\" generate m --load-format dummy --device null" + flags);
  EXPECT_EQ(piped.out, expected) << piped.err;
  EXPECT_EQ(Generate("--prompt z --prompt-file prompt.txt --prompt abc" + flags).out,
            "== --prompt 1\n" + Spelled(Expected({25}, 3)) + "\n== prompt.txt\n" + expected +
                "== --prompt 3\n" + expected);
}

TEST_F(GenerateTest, AChatMessageGoesThroughTheTemplate) {
  AddTokenizer(folder_ / "m");
  EXPECT_THAT(Generate("--chat a").err, HasSubstr("--chat 1: the model has no chat template"));
  WriteText(folder_ / "m" / "chat_template.jinja",
            "{% for m in messages %}\n{{- m.content -}}\n{% endfor %}\n"
            "{%- if add_generation_prompt %}c{% endif %}");
  const ProgramResult r = Generate("--chat ab --prompt z --max-tokens 2");
  EXPECT_EQ(r.out, "== --chat 1\n" + Spelled(Expected({0, 1, 2}, 2)) + "\n== --prompt 2\n" +
                       Spelled(Expected({25}, 2)) + "\n")
      << r.err;
  // An answer in a chat is not cut at a length that nobody asked for.
  EXPECT_EQ(Generate("--chat ab").out, Spelled(Expected({0, 1, 2}, 61)) + "\n");
  WriteText(folder_ / "m" / "chat_template.jinja", "{{ raise_exception('not today') }}");
  EXPECT_THAT(Generate("--chat a").err, HasSubstr("not today"));
}

TEST_F(GenerateTest, LogprobsNeedTheFormThatShowsThem) {
  for (const char* flag : {"--logprobs 1", "--prompt-logprobs 1"}) {
    const ProgramResult r = Generate(std::string("--prompt a ") + flag);
    EXPECT_EQ(r.exit_code, 2);
    EXPECT_THAT(r.err, HasSubstr("requires --json"));
  }
}

// As a cache of downloads leaves them when it is cut off.
TEST_F(GenerateTest, AFileThatCannotBeReadIsNotTakenForAbsent) {
  for (const char* name : {"generation_config.json", "tokenizer_config.json", "tokenizer.json",
                           "special_tokens_map.json", "chat_template.jinja", "config.json"}) {
    const std::string model = std::string("broken-") + name;
    MakeModel(model);
    AddTokenizer(folder_ / model);
    std::filesystem::remove(folder_ / model / name);
    std::filesystem::create_symlink("nowhere", folder_ / model / name);
    const ProgramResult r =
        Spry("generate " + model + " --load-format dummy --device null --prompt a");
    EXPECT_EQ(r.exit_code, 1) << name;
    EXPECT_THAT(r.err, HasSubstr(std::string(name) + ": ")) << name;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  }
}

TEST_F(GenerateTest, AModelsWordsDoNotSteerTheTerminal) {
  AddTokenizer(folder_ / "m");
  WriteText(folder_ / "m" / "chat_template.jinja",
            "{{ raise_exception('a\x1b]0;b\x07"
            "c\xc2\x9b"
            "31md\ne') }}");
  EXPECT_THAT(Generate("--chat a").err, HasSubstr("a ]0;b c 31md e\n"));
}

TEST_F(GenerateTest, RunAheadChangesNothing) {
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [3]}\n{\"prompt_token_ids\": [4, 5]}\n");
  const std::string flags = "--input in.jsonl --json --max-tokens 20 --run-ahead ";
  const std::string one = Generate(flags + "1").out;
  EXPECT_EQ(Generate(flags + "2").out, one);
  EXPECT_EQ(Generate(flags + "8").out, one);
}

TEST_F(GenerateTest, MissingAndUnreadableInputsAreOneLine) {
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"--input nowhere.jsonl", "nowhere.jsonl cannot be opened: No such file"},
           {"--input m", "m cannot be read: Is a directory"},
           {"--input empty.jsonl", "empty.jsonl has no line"},
           {"--prompt-file nowhere.txt", "nowhere.txt cannot be opened"}}) {
    WriteText(folder_ / "empty.jsonl", " \n\n");
    const ProgramResult r = Generate(arguments);
    EXPECT_EQ(r.exit_code, 1);
    EXPECT_THAT(r.err, HasSubstr("spry: " + message));
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_EQ(r.out, "");
  }
}

// --foreground: one signal, not a second one for the group, which ends the program at once.
TEST_F(GenerateTest, CtrlCEndsTheRunCleanly) {
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [3]}\n");
  const ProgramResult r = Shell(
      "timeout --foreground --preserve-status -s INT 3 \"$SPRY\" generate m --load-format dummy "
      "--device null --null-step-us 1000000 --input in.jsonl --max-tokens 50");
  EXPECT_EQ(r.exit_code, 130);
  EXPECT_THAT(r.err, Not(HasSubstr("spry:")));
  EXPECT_THAT(r.out, ::testing::StartsWith(std::to_string(Expected({3}, 1)[0])));
  EXPECT_THAT(r.out, ::testing::EndsWith("\n"));
}

TEST_F(GenerateTest, AReaderThatLeavesEndsTheRunQuietly) {
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [3]}\n");
  const ProgramResult r = Shell(
      "\"$SPRY\" generate m --load-format dummy --device null --null-step-us 20000 --input "
      "in.jsonl "
      "--max-tokens 50 | head -c 3");
  EXPECT_EQ(r.out, std::to_string(Expected({3}, 1)[0]));
  EXPECT_THAT(r.err, Not(HasSubstr("spry:")));
}

TEST_F(GenerateTest, AFullDiskIsAnError) {
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [3]}\n");
  const ProgramResult r =
      Shell("\"$SPRY\" generate m --load-format dummy --device null --input in.jsonl >/dev/full");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("spry: stdout cannot be written: No space left on device"));
}

}  // namespace
}  // namespace spry
