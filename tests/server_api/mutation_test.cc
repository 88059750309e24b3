// A thousand broken bodies: each is answered, as what it asks or with what is wrong with it.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

struct Seed {
  const char* path;
  const char* body;
};

constexpr Seed kSeeds[] = {
    {"/v1/completions",
     R"({"model":"tiny","prompt":"héllo","max_tokens":4,"n":2,"temperature":0.7,"stop":["a","b"],
         "logit_bias":{"17":3.5,"300":-100},"logprobs":null,"echo":true,"seed":7,"stream":true,
         "stream_options":{"include_usage":true},"bad_words":["x y"],"min_tokens":1})"},
    {"/v1/completions",
     R"({"prompt":[[300,301],[302]],"max_tokens":3,"return_token_ids":true,"top_k":5,"top_p":0.9,
         "stop_token_ids":[400],"allowed_token_ids":[600,601],"cache_salt":"s","priority":0})"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text",
         "text":"b"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
         "function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","content":"c"}],
         "max_completion_tokens":3,"tools":[],"response_format":{"type":"text"},"n":1,
         "chat_template_kwargs":{"a":[1,{"b":2}]},"frequency_penalty":0.5})"},
    {"/tokenize", R"({"messages":[{"role":"user","content":"hi"}],"return_token_strs":true})"},
    {"/detokenize", R"({"tokens":[104,105,256]})"},
};

constexpr const char* kWords[] = {
    "null",     "true",         "-1",   "1e999", "0",  "1.5", "18446744073709551616",
    "\"\"",     "[]",           "{}",   "[[[[",  "\\", "\"",  "\\ud800",
    "\xC3",     "\xED\xA0\x80", ",",    ":",     "}",  "]",   "\"n\":1",
    "\"x\":{}", "1000000000",   "\x01",
};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string Mutate(std::string body) {
    for (int i = Draw(2); i >= 0; --i) Once(body);
    return body;
  }

 private:
  int Draw(size_t end) { return static_cast<int>(random_() % end); }

  void Once(std::string& body) {
    if (body.empty()) body = "{";
    const size_t at = Draw(body.size());
    switch (Draw(9)) {
      case 0: body[at] = static_cast<char>(Draw(256)); break;
      case 1: body.erase(at, 1 + Draw(8)); break;
      case 2: body.insert(at, kWords[Draw(std::size(kWords))]); break;
      case 3: body.insert(at, body.substr(Draw(body.size()), Draw(30))); break;
      case 4: body.resize(at); break;
      default: ReplaceValue(body, at);
    }
  }

  // Keeps most bodies well-formed, so that what lies behind the JSON reader is reached.
  void ReplaceValue(std::string& body, size_t from) {
    const size_t colon = body.find(':', from);
    if (colon == std::string::npos) return;
    const size_t end = body.find_first_of(",}", colon);
    if (end != std::string::npos) body.replace(colon + 1, end - colon - 1, kWords[Draw(10)]);
  }

  std::mt19937 random_;
};

TEST(MutationTest, EachBodyIsAnsweredOrRefused) {
  ApiRig rig;
  std::array<int, 2> counts{};  // refused, served
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const Seed& base = kSeeds[seed % std::size(kSeeds)];
    const std::string body = Mutator(seed).Mutate(base.body);
    SCOPED_TRACE(testing::Message() << base.path << " " << body);
    const auto exchange = rig.Post(base.path, body);
    const HttpResponse& answer = exchange->answer();
    ++counts[answer.status == 200 ? 1 : 0];
    if (exchange->streams()) {
      EXPECT_EQ(exchange->Events().back(), "[DONE]");
      for (const std::string& event : exchange->Events()) {
        EXPECT_TRUE(event == "[DONE]" || json::parse(event).is_object()) << event;
      }
      continue;
    }
    const json::value read = json::parse(answer.body);
    if (answer.status == 200) continue;
    EXPECT_TRUE(answer.status == 400 || answer.status == 404) << answer.status;
    EXPECT_FALSE(read.at("error").at("message").as_string().empty());
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(counts[0], 300);
  EXPECT_GT(counts[1], 100);
  EXPECT_EQ(rig.endpoints().running(), 0);
  EXPECT_EQ(rig.engine().live(), 0);
}

}  // namespace
}  // namespace spry
