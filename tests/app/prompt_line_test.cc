#include "app/prompt_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace spry {
namespace {

using ::testing::HasSubstr;

TEST(PromptLineTest, EveryFieldIsRead) {
  const Result<PromptLine> line = ParsePromptLine(
      R"({"prompt": "a\nb\\n", "temperature": 0.5, "top_p": 1, "top_k": -1, "min_p": 0.1,
          "seed": 18446744073709551615, "max_tokens": 7, "min_tokens": 2, "stop_token_ids": [3, 4],
          "ignore_eos": true, "logprobs": 0, "stop": ["a", "b"],
          "include_stop_str_in_output": true, "repetition_penalty": 1.5, "presence_penalty": -1,
          "frequency_penalty": 0.25, "logit_bias": {"11": -5, "0": 0.5},
          "allowed_token_ids": [0, 11], "bad_words": ["x y"], "prompt_logprobs": 3, "n": 2,
          "priority": -5})");
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(line->text, "a\nb\\n");  // JSON's escapes and no others
  EXPECT_TRUE(line->token_ids.empty());
  const SamplingFields& s = line->sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 1.0);
  EXPECT_EQ(s.top_k, -1);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.seed, UINT64_MAX);
  EXPECT_EQ(s.max_tokens, 7);
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_EQ(s.stop_token_ids, (std::vector<TokenId>{TokenId(3), TokenId(4)}));
  EXPECT_EQ(s.ignore_eos, true);
  EXPECT_EQ(s.logprobs, 0);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.include_stop_str_in_output, true);
  EXPECT_EQ(s.prompt_logprobs, 3);
  EXPECT_EQ(s.n, 2);
  EXPECT_EQ(line->priority, -5);
  EXPECT_EQ(s.repetition_penalty, 1.5);
  EXPECT_EQ(s.presence_penalty, -1.0);
  EXPECT_EQ(s.frequency_penalty, 0.25);
  EXPECT_EQ(s.logit_bias, (std::vector<LogitBias>{{TokenId(11), -5.0f}, {TokenId(0), 0.5f}}));
  EXPECT_EQ(s.allowed_token_ids, (std::vector<TokenId>{TokenId(0), TokenId(11)}));
  EXPECT_EQ(s.bad_words, std::vector<std::string>{"x y"});
}

TEST(PromptLineTest, OneStopStringStandsForAList) {
  const Result<PromptLine> line = ParsePromptLine(R"({"prompt": "x", "stop": "end"})");
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(line->sampling.stop, std::vector<std::string>{"end"});
}

TEST(PromptLineTest, NullCountsAsAbsent) {
  const Result<PromptLine> line = ParsePromptLine(
      R"({"prompt": null, "prompt_token_ids": [1], "temperature": null, "stop": null,
          "max_tokens": null, "seed": null, "logprobs": null, "logit_bias": null})");
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_FALSE(line->text.has_value());
  EXPECT_EQ(line->token_ids, std::vector<TokenId>{TokenId(1)});
  EXPECT_FALSE(line->sampling.temperature.has_value());
  EXPECT_FALSE(line->sampling.max_tokens.has_value());
  EXPECT_FALSE(line->sampling.seed.has_value());
  EXPECT_FALSE(line->sampling.logprobs.has_value());
}

TEST(PromptLineTest, AnEmptyPromptIsAPrompt) {
  const Result<PromptLine> line = ParsePromptLine(R"({"prompt": ""})");
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->text, "");
}

TEST(PromptLineTest, WrongLinesNameTheFieldAndWhatWasFound) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt": 3})", "prompt is 3; it must be a string"},
      {R"({"prompt": ["a"]})", "prompt is [\"a\"]"},
      {R"({"prompt": "x", "temperature": "hot"})", "temperature is \"hot\"; it must be a number"},
      {R"({"prompt": "x", "temperature": true})", "temperature is true"},
      {R"({"prompt": "x", "top_p": []})", "top_p is []"},
      {R"({"prompt": "x", "min_p": {}})", "min_p is {}"},
      {R"({"prompt": "x", "top_k": 1.5})", "top_k is"},
      {R"({"prompt": "x", "top_k": 4294967296})", "top_k is 4294967296"},
      {R"({"prompt": "x", "max_tokens": "3"})", "max_tokens is \"3\""},
      {R"({"prompt": "x", "min_tokens": 99999999999999999999})", "min_tokens is"},
      {R"({"prompt": "x", "seed": 0.5})", "seed is"},
      {R"({"prompt": "x", "ignore_eos": 1})", "ignore_eos is 1; it must be true or false"},
      {R"({"prompt": "x", "logprobs": true})", "logprobs is true"},
      {R"({"prompt": "x", "stop_token_ids": 5})", "stop_token_ids is 5"},
      {R"({"prompt": "x", "repetition_penalty": "1"})", "repetition_penalty is \"1\""},
      {R"({"prompt": "x", "logit_bias": [1]})", "logit_bias is [1]; it must be an object"},
      {R"({"prompt": "x", "logit_bias": {"abc": 5}})", "a key of logit_bias is \"abc\""},
      {R"({"prompt": "x", "logit_bias": {"1.5": 5}})", "a key of logit_bias is \"1.5\""},
      {R"({"prompt": "x", "logit_bias": {"": 5}})", "a key of logit_bias is \"\""},
      {R"({"prompt": "x", "logit_bias": {"99999999999": 5}})", "a key of logit_bias"},
      {R"({"prompt": "x", "logit_bias": {"7": null}})", "logit_bias[7] is null"},
      {R"({"prompt": "x", "allowed_token_ids": {}})", "allowed_token_ids is {}"},
      {R"({"prompt": "x", "bad_words": [3]})", "bad_words[0] is 3"},
      {R"({"prompt": "x", "stop": 5})", "stop is 5"},
      {R"({"prompt": "x", "stop": ["a", null]})", "stop[1] is null"},
      {R"({"prompt": "x", "stop_token_ids": [1, "2"]})", "stop_token_ids[1] is \"2\""},
      {R"({"prompt_token_ids": [1.5]})", "prompt_token_ids[0] is"},
      {R"({"prompt_token_ids": [0, true]})", "prompt_token_ids[1] is true"},
      {R"({"prompt_token_ids": [-1]})", "prompt_token_ids[0] is -1"},
      {R"({"prompt_token_ids": [50272000000]})", "prompt_token_ids[0] is 50272000000"},
      {R"({"prompt_token_ids": "abc"})", "prompt_token_ids is \"abc\""},
      {R"({"prompt": "x", "prompt_token_ids": [1]})", "both"},
      {R"({"max_tokens": 1})", "prompt is missing"},
      {R"({})", "prompt is missing"},
      {R"({"prompt": "x", "temprature": 0})", "unknown field \"temprature\""},
      {R"({"prompt": "x", "stops": ["."]})", "unknown field \"stops\""},
      {R"(["prompt"])", "not a JSON object"},
      {R"("prompt")", "not a JSON object"},
      {R"({"prompt": "x")", "not valid JSON"},
      {R"({"prompt": "x"} {"prompt": "y"})", "not valid JSON"},
      {R"({"prompt": "\ud800"})", "before byte 18 is half of a surrogate pair"},
      {R"({"prompt": "\udc00x"})", "is half of a surrogate pair"},
      {"{\"prompt\": \"\xC3\x28\"}", "not valid JSON: byte 12 is no UTF-8"},
      {"{\"prompt\": \"a\tb\x01\"}", "not valid JSON"},
      {std::string("{\"prompt\": \"x\"}\0", 16), "not valid JSON"},
      {std::string(100000, '['), "not valid JSON"},
  };
  for (const auto& [text, expected] : cases) {
    const Result<PromptLine> line = ParsePromptLine(text);
    ASSERT_FALSE(line.ok()) << text.substr(0, 80);
    EXPECT_THAT(line.status().message(), HasSubstr(expected));
    EXPECT_EQ(line.status().message().find('\n'), std::string::npos);
    EXPECT_LT(line.status().message().size(), 400u);
  }
}

TEST(PromptLineTest, LongValuesAreCutBetweenCharacters) {
  const Result<PromptLine> line =
      ParsePromptLine(R"({"prompt": "x", "seed": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\u20ac"})");
  ASSERT_FALSE(line.ok());
  EXPECT_THAT(line.status().message(), HasSubstr("aaa...; it must be"));
}

}  // namespace
}  // namespace spry
