// What is wrong with a request is said with its field, what was found and what may be; the server
// goes on. The numbers are those of tests of public fault reports.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

struct Refused {
  const char* fields;  // after a prompt of [300]
  const char* param;
  const char* message;  // a part of it
};

class RefusalsTest : public testing::Test {
 protected:
  // With the completion `{"prompt":[300],` + fields + `}`.
  void ExpectRefused(const Refused& refused) {
    const std::string body = std::string(R"({"prompt":[300],)") + refused.fields + "}";
    Check(rig_.Refusal("/v1/completions", body), refused);
  }
  void ExpectChatRefused(const Refused& refused) {
    const std::string body =
        std::string(R"({"messages":[{"role":"user","content":"hi"}],)") + refused.fields + "}";
    Check(rig_.Refusal("/v1/chat/completions", body), refused);
  }
  void ExpectServes() {
    const json::object answer = rig_.Ask("/v1/completions", R"({"prompt":[300],"max_tokens":1})");
    EXPECT_EQ(answer.at("usage").at("completion_tokens"), 1);
  }

  ApiRig rig_;

 private:
  static void Check(const json::object& error, const Refused& refused) {
    SCOPED_TRACE(refused.fields);
    ASSERT_TRUE(error.contains("message"));
    EXPECT_NE(View(error.at("message")).find(refused.message), std::string_view::npos)
        << error.at("message");
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_EQ(error.at("param"), refused.param);
    EXPECT_TRUE(error.contains("code"));
  }
};

TEST_F(RefusalsTest, SamplingOutOfRange) {
  for (const Refused& refused : {
           Refused{R"("temperature":-1)", "temperature", "temperature is -1; it must be 0 or more"},
           {R"("temperature":1e400)", "temperature", "over 1.8e+308; it must be in [0, 3.4e+38]"},
           {R"("temperature":-1e400)", "temperature", "it must be 0 or more"},
           {R"("temperature":1e39)", "temperature", "in [0, 3.4e+38]"},
           {R"("top_p":1e400)", "top_p", "(0, 1]"},
           {R"("top_p":-1e400)", "top_p", "a number under -1.8e+308; it must be in (0, 1]"},
           {R"("n":1e400)", "n", "over 1.8e+308; it must be an integer, from 1 to 128"},
           {R"("n":9223372036854775808)", "n", "from 1 to 128"},
           {R"("max_tokens":2147483648)", "max_tokens", "from 0 to 2147483647"},
           {R"("top_k":2147483648)", "top_k", "from -1 to 2147483647"},
           {R"("priority":-2147483649)", "priority", "from -2147483648 to 2147483647"},
           {R"("seed":1.5)", "seed", "-9223372036854775808 to 18446744073709551615"},
           {R"("temperature":"hot")", "temperature", "\"hot\"; it must be a number, 0 or more"},
           {R"("top_p":"x")", "top_p", "it must be a number, in (0, 1]"},
           {R"("top_p":0)", "top_p", "(0, 1]"},
           {R"("top_p":1.1)", "top_p", "(0, 1]"},
           {R"("min_p":2)", "min_p", "[0, 1]"},
           {R"("top_k":-2)", "top_k", "top_k is -2; it must be -1 or more"},
           {R"("n":0)", "n", "from 1 to 128"},
           {R"("n":1.5)", "n", "an integer"},
           {R"("n":2,"temperature":0)", "n", "must be 1 with a temperature of 0"},
           {R"("n":100)", "n", "n is 100; this server gives at most 72 at once"},
           {R"("seed":18446744073709551616)", "seed", "to 18446744073709551615"},
           {R"("seed":"1")", "seed", "integer"},
           {R"("max_tokens":0)", "max_tokens", "1 or more"},
           {R"("max_tokens":-1)", "max_tokens", "max_tokens is -1; it must be 0 or more"},
           {R"("max_tokens":true)", "max_tokens", "true; it must be an integer, 0 or more"},
           {R"("max_tokens":1.5)", "max_tokens", "1.5; it must be an integer, 0 or more"},
           {R"("max_tokens":1e400)", "max_tokens", "an integer, from 0 to 2147483647"},
           {R"("min_tokens":9,"max_tokens":3)", "min_tokens", "from 0 to max_tokens"},
           {R"("stream":1)", "stream", "true or false"},
           {R"("stop":[1])", "stop[0]", "a string"},
           {R"("stop_token_ids":[5000])", "stop_token_ids", "from 0 to 1023"},
           {R"("allowed_token_ids":[])", "allowed_token_ids", "at least one id"},
           {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens", "from 1 to 128"},
           {R"("request_id":"a b")", "request_id", "printable"},
           {R"("user":3,"best_of":3)", "best_of", "best_of is 3"},
       }) {
    ExpectRefused(refused);
  }
  ExpectServes();
}

TEST_F(RefusalsTest, SeedsAreAnyIntegersOf64Bits) {
  for (const char* seed : {"0", "-1", "-9223372036854775808", "9223372036854775807",
                           "9223372036854775808", "18446744073709551615"}) {
    rig_.Ask("/v1/completions",
             std::string(R"({"prompt":[300],"max_tokens":1,"seed":)") + seed + "}");
  }
}

TEST_F(RefusalsTest, B050PenaltiesOutOfRange) {
  ExpectRefused({R"("repetition_penalty":0)", "repetition_penalty", "must be more than 0"});
  ExpectRefused({R"("repetition_penalty":-1)", "repetition_penalty", "must be more than 0"});
  ExpectRefused({R"("frequency_penalty":3)", "frequency_penalty", "[-2, 2]"});
  ExpectRefused({R"("presence_penalty":-2.5)", "presence_penalty", "[-2, 2]"});
}

TEST_F(RefusalsTest, B035LogprobsBeyondTheLimit) {
  ExpectChatRefused({R"("logprobs":true,"top_logprobs":1000000)", "top_logprobs", "0 to 20"});
  ExpectChatRefused({R"("logprobs":true,"top_logprobs":-1)", "top_logprobs", "0 to 20"});
  ExpectChatRefused({R"("top_logprobs":3)", "top_logprobs", "logprobs set to true"});
  ExpectRefused({R"("logprobs":21)", "logprobs", "0 to 20"});
  ExpectRefused({R"("logprobs":true)", "logprobs", "integer"});
  ExpectRefused({R"("prompt_logprobs":-1)", "prompt_logprobs", "0 to 20"});
  ExpectRefused({R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "stream"});
  ExpectServes();
}

TEST_F(RefusalsTest, B037LogitBiasOutsideVocabularyOrRange) {
  for (const char* bias : {R"({"999999":5})", R"({"-1":5})", R"({"abc":5})", R"({"":5})",
                           R"({"5x":5})", R"({"11":101})", R"({"11":"5"})"}) {
    ExpectRefused({(std::string(R"("logit_bias":)") + bias).c_str(), "logit_bias", "logit_bias"});
  }
  ExpectRefused({R"("logit_bias":[1])", "logit_bias", "an object"});
  ExpectServes();
}

TEST_F(RefusalsTest, B038PromptIdsOutsideVocabulary) {
  for (const char* ids : {"[50272000]", "[-1]", "[1.5]", "[true]", "[300,null]", "[[300],[-7]]",
                          "[\"a\",300]", "[99999999999999999999]"}) {
    const json::object error =
        rig_.Refusal("/v1/completions", std::string(R"({"prompt":)") + ids + "}");
    EXPECT_EQ(error.at("param"), "prompt") << ids;
  }
  const json::object error = rig_.Refusal("/v1/completions", R"({"prompt":[1,-1]})");
  EXPECT_EQ(error.at("message"), "prompt[1] is -1; ids of this model go from 0 to 1023");
  ExpectServes();
}

TEST_F(RefusalsTest, PromptsThatAreNone) {
  for (const char* body : {"{}", R"({"prompt":null})", R"({"prompt":[]})", R"({"prompt":""})",
                           R"({"prompt":{}})", R"({"prompt":[[]]})", R"({"prompt":7})"}) {
    EXPECT_EQ(rig_.Refusal("/v1/completions", body).at("param"), "prompt") << body;
  }
  for (const char* body :
       {"{}", R"({"messages":[]})", R"({"messages":"hi"})", R"({"messages":null})"}) {
    EXPECT_EQ(rig_.Refusal("/v1/chat/completions", body).at("param"), "messages") << body;
  }
}

TEST_F(RefusalsTest, NumbersOfThingsAreSaidAsPeopleDo) {
  EXPECT_EQ(rig_.Refusal("/v1/chat/completions", R"({"messages":[]})").at("message"),
            "messages is empty; it must have at least one message");
  EXPECT_EQ(rig_.Refusal("/v1/completions", R"({"prompt":["a","b"],"n":60})").at("message"),
            "2 prompts with n = 60 are 120 answers; this server gives at most 72 at once");
}

TEST_F(RefusalsTest, NoTokensAtAllNeedAnEcho) {
  for (const std::string name : {"max_tokens", "max_completion_tokens"}) {
    const json::object error =
        rig_.Refusal("/v1/completions", "{\"prompt\":[300],\"" + name + "\":0}");
    EXPECT_EQ(error.at("param"), json::value(name));
    EXPECT_EQ(View(error.at("message")),
              name +
                  " is 0; it must be 1 or more, or else echo must be true: then the answer is "
                  "the prompt alone, with its logprobs");
  }
  rig_.Ask("/v1/completions", R"({"prompt":[300],"max_tokens":0,"echo":true})");
  ExpectServes();
}

TEST_F(RefusalsTest, B025EmptyStopStrings) {
  ExpectRefused({R"("stop":"")", "stop", "from 1 to 1024"});
  ExpectRefused({R"("stop":["x",""])", "stop", "from 1 to 1024"});
  for (const char* stop : {"[]", "null"}) {
    const json::object answer = rig_.Ask(
        "/v1/completions", std::string(R"({"prompt":[300],"max_tokens":3,"stop":)") + stop + "}");
    EXPECT_EQ(answer.at("usage").at("completion_tokens"), 3);
  }
}

TEST_F(RefusalsTest, WhatIsNotServedYetIsSaidSo) {
  for (const char* field :
       {R"("tools":[{"type":"function"}])", R"("tool_choice":"auto")", R"("functions":[{}])",
        R"("response_format":{"type":"json_object"})", R"("audio":{})",
        R"("modalities":["text","audio"])", R"("prediction":{})", R"("guided_json":{})",
        R"("structured_outputs":{"regex":"a"})", R"("suffix":"x")", R"("use_beam_search":true)",
        R"("web_search_options":{})", R"("thinking_token_budget":5)"}) {
    const std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
    const std::string message = "this server does not serve " + name;
    ExpectChatRefused({field, name.c_str(), message.c_str()});
  }
  ExpectChatRefused({R"("tools":[{}])", "tools", "tools yet; leave it out (found a list)"});
  ExpectChatRefused({R"("response_format":{"type":"json_schema","json_schema":{}})",
                     "response_format",
                     "response_format of type \"json_schema\" yet; leave it out"});
  // What asks for nothing passes.
  rig_.Ask("/v1/chat/completions",
           R"({"messages":[{"role":"user","content":"hi"}],"tools":[],"tool_choice":"none",
               "response_format":{"type":"text"},"modalities":["text"],"suffix":null,
               "parallel_tool_calls":true,"store":false,"metadata":{"a":"b"},"max_tokens":2})");
  EXPECT_TRUE(rig_.ignored().empty());
}

TEST_F(RefusalsTest, UnknownFieldsAreIgnoredAndReported) {
  rig_.Ask("/v1/completions", R"({"prompt":[300],"max_tokens":1,"frobnicate":1,"user":"u"})");
  EXPECT_EQ(rig_.ignored(), std::vector<std::string>{"frobnicate"});
}

void ExpectNotJson(ApiRig& rig, const std::string& body, const std::string& why) {
  EXPECT_EQ(View(rig.Refusal("/v1/completions", body).at("message")),
            "the body is not JSON: " + why)
      << body;
}

TEST_F(RefusalsTest, B053BrokenTextInTheBody) {
  const std::string half = "the \\u escape before byte {} is half of a surrogate pair";
  for (const auto& [body, at] :
       {std::pair(R"({"prompt":"\ud800"})", 17), std::pair(R"({"prompt":"\udc00x"})", 17),
        std::pair(R"({"prompt":"\uDBFF\n"})", 18), std::pair(R"({"prompt":"\ud800\u0041"})", 19)}) {
    ExpectNotJson(rig_, body, fmt::format(fmt::runtime(half), at));
  }
  for (const auto& [body, at] :
       {std::pair("{\"prompt\":\"\xC3\x28\"}", 11), std::pair("{\"prompt\":\"\xED\xA0\x80\"}", 11),
        std::pair("{\"prompt\":\"h\xC3\xA9\xE2\x82", 14), std::pair("\xFF", 0)}) {
    ExpectNotJson(rig_, body, fmt::format("byte {} is no UTF-8", at));
  }
  ExpectServes();
}

TEST_F(RefusalsTest, WhereTheBodyIsNoJson) {
  ExpectNotJson(rig_, "", "it is empty");
  ExpectNotJson(rig_, R"({"prompt":[300)", "it ends too early, at byte 14");
  ExpectNotJson(rig_, R"({"prompt":[300],})", "syntax error at byte 16");
  ExpectNotJson(rig_, R"({"prompt":NaN})", "syntax error at byte 10");
  ExpectNotJson(rig_, R"({"prompt":[300]} x)", "extra data at byte 17");
  // A whole pair before the error, and broken text behind it.
  ExpectNotJson(rig_, R"({"prompt":"\ud83d\ude00",})", "syntax error at byte 25");
  ExpectNotJson(rig_, "{\"prompt\":1,,\"\xFF\"}", "syntax error at byte 12");
}

TEST_F(RefusalsTest, BodiesThatAreNoObject) {
  for (const char* body : {"", "[]", "{", "nul", "\"x\"", "{\"prompt\":[300],}", "{}{}",
                           "{\"prompt\":NaN}", "{'prompt':1}"}) {
    rig_.Refusal("/v1/completions", body);
  }
  std::string deep = R"({"prompt":[300],"x":)";
  for (int i = 0; i < 40; ++i) deep += '[';
  for (int i = 0; i < 40; ++i) deep += ']';
  const json::object error = rig_.Refusal("/v1/completions", deep + "}");
  EXPECT_EQ(error.at("message"), "the body nests deeper than the limit of 32");
  ExpectServes();
}

TEST_F(RefusalsTest, WrongContentType) {
  for (const char* type : {"text/plain", "", "application/x-www-form-urlencoded"}) {
    const auto exchange = rig_.Send("POST", "/v1/completions", R"({"prompt":[300]})", type);
    EXPECT_EQ(exchange->answer().status, 415) << type;
  }
  const auto exchange = rig_.Send("POST", "/v1/completions", R"({"prompt":[300]})",
                                  "Application/JSON ; charset=utf-8");
  rig_.Run(*exchange);
  EXPECT_EQ(exchange->answer().status, 200);
}

TEST_F(RefusalsTest, UnknownModelInOpenAisForm) {
  const json::object error =
      rig_.Refusal("/v1/completions", R"({"model":"gpt-9","prompt":[300]})", 404);
  EXPECT_EQ(error.at("code"), "model_not_found");
  EXPECT_EQ(error.at("param"), "model");
  EXPECT_EQ(error.at("message"),
            "The model `gpt-9` does not exist. This server has `tiny`, `org/tiny`.");
  EXPECT_EQ(rig_.Ask("/v1/completions", R"({"model":"org/tiny","prompt":[300]})").at("model"),
            "tiny");
}

TEST_F(RefusalsTest, WhatDoesNotFitTheModel) {
  const json::object error =
      rig_.Refusal("/v1/completions", R"({"prompt":[300,301],"max_tokens":127})");
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("param"), "max_tokens");
  // The words that clients look for.
  EXPECT_TRUE(View(error.at("message")).starts_with("This model's maximum context length is 128"));
  std::string prompt = "300";
  for (int i = 1; i < 128; ++i) prompt += ",300";
  EXPECT_EQ(rig_.Refusal("/v1/completions", R"({"prompt":[)" + prompt + "]}").at("param"),
            "prompt");
  // Without max_tokens the default is cut to what fits.
  const json::object answer =
      rig_.Ask("/v1/completions", R"({"prompt":[)" + prompt.substr(0, 4 * 124 - 1) + "]}");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 4);
}

TEST_F(RefusalsTest, B058PartsThatAreNotText) {
  const json::object error =
      rig_.Refusal("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},
          {"type":"image_url","image_url":{"url":"data:x"}}]}]})");
  EXPECT_EQ(error.at("param"), "messages[0].content[1]");
  EXPECT_EQ(View(error.at("message")),
            "messages[0].content[1] is of type \"image_url\"; this server serves text parts");
}

TEST_F(RefusalsTest, MessagesThatAreNone) {
  for (const char* message :
       {"1", "{}", R"({"role":1})", R"({"role":""})", R"({"role":"user","content":5})",
        R"({"role":"user","content":[{"type":"text"}]})", R"({"role":"user","content":[5]})",
        R"({"role":"user","content":[{"type":"refusal","refusal":"no"}]})",
        R"({"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]})"}) {
    const json::object error =
        rig_.Refusal("/v1/chat/completions", std::string(R"({"messages":[)") + message + "]}");
    EXPECT_TRUE(View(error.at("param")).starts_with("messages[0]")) << message;
  }
}

TEST_F(RefusalsTest, RolesThatNobodyKnows) {
  for (const char* role : {R"("alien")", R"("User")", R"("")"}) {
    const json::object error =
        rig_.Refusal("/v1/chat/completions",
                     std::string(R"({"messages":[{"content":"hi","role":)") + role + "}]}");
    EXPECT_EQ(error.at("param"), "messages[0].role");
    EXPECT_EQ(View(error.at("message")),
              std::string("messages[0].role is the string ") + role +
                  "; it must be system, developer, user, assistant, tool or function");
  }
  for (const char* role : {"system", "developer", "user", "assistant", "tool", "function"}) {
    rig_.Ask("/v1/chat/completions", std::string(R"({"messages":[{"content":"hi","role":")") +
                                         role + R"("}],"max_tokens":1})");
  }
}

TEST_F(RefusalsTest, OnlyTheAssistantMaySayNothing) {
  const auto body = [](const char* role, const char* content) {
    return std::string(R"({"max_tokens":1,"messages":[{"role":")") + role + '"' + content + "}]}";
  };
  for (const char* content : {"", R"(,"content":null)", R"(,"content":[])"}) {
    for (const char* role : {"system", "developer", "user", "tool", "function"}) {
      const json::object error = rig_.Refusal("/v1/chat/completions", body(role, content));
      EXPECT_EQ(error.at("param"), "messages[0].content") << role << content;
    }
    rig_.Ask("/v1/chat/completions", body("assistant", content));
  }
  EXPECT_EQ(rig_.Refusal("/v1/chat/completions", body("user", "")).at("message"),
            "messages[0].content is missing; it must be a string or a list of parts");
  rig_.Ask("/v1/chat/completions",
           body("assistant", R"(,"content":[{"type":"refusal","refusal":"no"}])"));
}

TEST_F(RefusalsTest, TemplatesOfRequestsNeedTrust) {
  ExpectChatRefused({R"("chat_template":"x")", "chat_template", "--trust-request-chat-template"});
  ApiRig trusting({.trust_request_chat_template = true});
  const json::object answer = trusting.Ask(
      "/tokenize",
      R"({"messages":[{"role":"user","content":"hi"}],"chat_template":"{{bos_token}}A"})");
  EXPECT_EQ(answer.at("tokens"), json::parse("[256,65]"));
}

TEST_F(RefusalsTest, ContinuingAndOpeningExcludeEachOther) {
  ExpectChatRefused({R"("continue_final_message":true,"add_generation_prompt":true)",
                     "continue_final_message", "only one"});
}

TEST_F(RefusalsTest, WithoutTokenizerThereIsNoText) {
  ApiRig bare({.has_tokenizer = false});
  EXPECT_EQ(bare.Refusal("/v1/completions", R"({"prompt":"hi"})").at("param"), "prompt");
  EXPECT_EQ(bare.Refusal("/v1/completions", R"({"prompt":[3],"stop":"x"})").at("param"), "stop");
  bare.Refusal("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  bare.Refusal("/tokenize", R"({"prompt":"hi"})");
  bare.Refusal("/detokenize", R"({"tokens":[3]})");
  const json::object answer =
      bare.Ask("/v1/completions", R"({"prompt":[300],"max_tokens":2,"return_token_ids":true})");
  EXPECT_EQ(answer.at("choices").at(0).at("token_ids").as_array().size(), 2u);
}

TEST_F(RefusalsTest, AFullServerSays429) {
  ApiRig full({.max_rows = 1, .max_queue = 1});
  const char* body = R"({"prompt":[300],"max_tokens":100})";
  const auto first = full.Send("POST", "/v1/completions", body);
  const auto second = full.Send("POST", "/v1/completions", body);
  const auto third = full.Send("POST", "/v1/completions", body);
  EXPECT_EQ(third->answer().status, 429);
  EXPECT_EQ(third->answer().fields,
            (std::vector<std::pair<std::string, std::string>>{{"Retry-After", "1"}}));
  const json::value error = json::parse(third->answer().body).at("error");
  EXPECT_EQ(error.at("code"), "rate_limit_exceeded");
  full.Run(*first);
  full.Run(*second);
  EXPECT_EQ(full.Post("/v1/completions", body)->answer().status, 200);
}

// Each answer has a copy of these.
TEST_F(RefusalsTest, WhatIsKeptForEveryAnswerIsLimited) {
  const std::string salt(1025, 's');
  const json::object error =
      rig_.Refusal("/v1/completions", R"({"prompt":[300],"cache_salt":")" + salt + R"("})");
  EXPECT_EQ(error.at("param"), "cache_salt");
  std::string ids = "300";
  for (int i = 0; i < 1 << 17; ++i) ids += ",300";
  EXPECT_EQ(rig_.Refusal("/detokenize", R"({"tokens":[)" + ids + "]}").at("param"), "tokens");
  rig_.Ask("/v1/completions",
           R"({"prompt":[301],"max_tokens":2,"allowed_token_ids":[)" + ids + "]}");
  ExpectServes();
}

// Megabytes without a space take a tokenizer seconds: what cannot fit is refused before.
TEST_F(RefusalsTest, APromptOfMoreBytesThanTokensCanHave) {
  const int64_t most = rig_.model().max_model_len * kMostBytesPerToken;
  const std::string text(most + 1, 'a');
  const json::object error = rig_.Refusal("/v1/completions", R"({"prompt":")" + text + R"("})");
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("param"), "prompt");
  const json::object chat = rig_.Refusal(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + text + R"("}]})");
  EXPECT_EQ(chat.at("code"), "context_length_exceeded");
  EXPECT_EQ(chat.at("param"), "messages");
  ExpectServes();
}

}  // namespace
}  // namespace spry
