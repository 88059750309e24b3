// What a real model (tiny, on the CPU) says through the server is what its engine says: tokens,
// log-probabilities, and their places in the text.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "device/cpu/cpu_device.h"
#include "tests/server_rig/api_rig.h"
#include "text/utf8.h"

namespace spry {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

RigOptions CpuOptions() {
  RigOptions options;
  auto device = MakeCpuDevice({.threads = 1});
  CHECK(device.ok());
  options.device = *std::move(device);
  options.vocab_size = 320;
  return options;
}

struct Said {
  std::vector<TokenId> ids;
  std::vector<TokenLogprobs> logprobs;
};

// What the engine alone says.
Said Direct(std::vector<TokenId> prompt, const SamplingParams& sampling) {
  RigOptions options = CpuOptions();
  auto engine =
      Engine::Create(std::move(options.device), RigCheckpoint(options), RigEngineOptions(options));
  CHECK(engine.ok());
  CHECK((*engine)->Submit({.prompt = std::move(prompt), .sampling = sampling}).ok());
  Said said;
  while (!(*engine)->idle()) {
    const auto events = (*engine)->Step();
    CHECK(events.ok());
    for (const TokenEvent& event : *events) {
      if (event.has_token) said.ids.push_back(event.token);
      if (event.logprobs != nullptr) said.logprobs.push_back(*event.logprobs);
    }
  }
  return said;
}

std::vector<TokenId> Ids(const json::value& list) {
  std::vector<TokenId> ids;
  for (const json::value& id : list.as_array()) ids.emplace_back(id.to_number<int>());
  return ids;
}

json::value Choice(const json::object& answer, int index = 0) {
  return answer.at("choices").at(index);
}

float Float(const json::value& value) { return static_cast<float>(value.to_number<double>()); }

SamplingParams Greedy(int max_tokens, int logprobs) {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = max_tokens;
  sampling.logprobs = logprobs;
  return sampling;
}

TEST(LogprobsTest, TokensEqualTheEnginesOwn) {
  ApiRig rig(CpuOptions());
  const std::vector<TokenId> prompt = {TokenId(72), TokenId(105), TokenId(300)};
  for (const bool greedy : {true, false}) {
    SamplingParams sampling;
    sampling.max_tokens = 24;
    sampling.temperature = greedy ? 0 : 0.9;
    sampling.top_p = 0.95;
    sampling.seed = 77;
    const std::string body = R"({"prompt":[72,105,300],"max_tokens":24,"top_p":0.95,"seed":77,
                                 "return_token_ids":true,"temperature":)" +
                             std::string(greedy ? "0" : "0.9") + "}";
    // Others run beside it.
    const auto other = rig.Send("POST", kCompletions, R"({"prompt":[9],"max_tokens":40})");
    EXPECT_EQ(Ids(Choice(rig.Ask(kCompletions, body)).at("token_ids")),
              Direct(prompt, sampling).ids);
    rig.Run(*other);
  }
}

TEST(LogprobsTest, B044B052ChoicesOfASeedDifferAndRepeat) {
  ApiRig rig(CpuOptions());
  const auto texts = [&](const std::string& fields) {
    const json::object answer = rig.Ask(
        kCompletions, R"({"prompt":[72],"max_tokens":12,"temperature":1.5,)" + fields + "}");
    std::vector<std::string> list;
    for (const json::value& choice : answer.at("choices").as_array()) {
      list.emplace_back(View(choice.at("text")));
    }
    return list;
  };
  const std::vector<std::string> four = texts(R"("n":4,"seed":1)");
  EXPECT_EQ(std::set<std::string>(four.begin(), four.end()).size(), 4u);
  EXPECT_EQ(texts(R"("n":4,"seed":1)"), four);
  EXPECT_EQ(texts(R"("seed":3)")[0], four[2]) << "choice i has seed + i";
  std::set<std::string> unseeded;
  for (int i = 0; i < 5; ++i) unseeded.insert(texts(R"("n":1)")[0]);
  EXPECT_EQ(unseeded.size(), 5u);
}

TEST(LogprobsTest, B049TinyTemperatureAndTopPAreGreedy) {
  ApiRig rig(CpuOptions());
  const auto text = [&](const char* fields) {
    return std::string(
        View(Choice(rig.Ask(kCompletions, std::string(R"({"prompt":[72,80],)") + fields + "}"))
                 .at("text")));
  };
  const std::string greedy = text(R"("temperature":0)");
  EXPECT_EQ(text(R"("temperature":1e-4)"), greedy);
  EXPECT_EQ(text(R"("temperature":1e-7)"), greedy);
  EXPECT_EQ(text(R"("top_p":1e-4)"), greedy);
}

TEST(LogprobsTest, B110TheModelsDefaultsHoldUnlessARequestSaysOtherwise) {
  RigOptions options = CpuOptions();
  options.defaults.temperature = 0;
  ApiRig rig(std::move(options));
  const std::vector<TokenId> greedy = Direct({TokenId(72)}, Greedy(16, 0)).ids;
  const auto ids = [&](const std::string& fields) {
    return Ids(
        Choice(rig.Ask(kCompletions, R"({"prompt":[72],"return_token_ids":true)" + fields + "}"))
            .at("token_ids"));
  };
  EXPECT_EQ(ids(""), greedy);
  EXPECT_EQ(ids(R"(,"temperature":null)"), greedy);
  EXPECT_NE(ids(R"(,"temperature":1.5,"seed":3)"), greedy);
}

TEST(LogprobsTest, CompletionsShape) {
  ApiRig rig(CpuOptions());
  const Said said = Direct({TokenId(72)}, Greedy(6, 2));
  const json::value logprobs =
      Choice(rig.Ask(kCompletions, R"({"prompt":[72],"max_tokens":6,"temperature":0,"logprobs":2,
                                       "return_tokens_as_token_ids":true})"))
          .at("logprobs");
  ASSERT_EQ(logprobs.at("tokens").as_array().size(), 6u);
  for (int i = 0; i < 6; ++i) {
    const TokenLogprobs& expected = said.logprobs[i];
    const std::string token = "token_id:" + std::to_string(said.ids[i].value());
    EXPECT_EQ(logprobs.at("tokens").at(i), json::value(token));
    EXPECT_EQ(Float(logprobs.at("token_logprobs").at(i)), expected.chosen.logprob);
    const json::object& top = logprobs.at("top_logprobs").at(i).as_object();
    EXPECT_EQ(top.size(), 2u);
    EXPECT_EQ(Float(top.at(token)), expected.chosen.logprob);
    const std::string second = "token_id:" + std::to_string(expected.top[1].token.value());
    EXPECT_EQ(Float(top.at(second)), expected.top[1].logprob);
  }
}

TEST(LogprobsTest, B029ZeroLogprobsAreTheChosenTokensOwn) {
  ApiRig rig(CpuOptions());
  const json::value logprobs =
      Choice(
          rig.Ask(kCompletions, R"({"prompt":[72],"max_tokens":3,"temperature":0,"logprobs":0})"))
          .at("logprobs");
  for (int i = 0; i < 3; ++i) {
    const json::object& top = logprobs.at("top_logprobs").at(i).as_object();
    ASSERT_EQ(top.size(), 1u);
    EXPECT_EQ(top.begin()->value(), logprobs.at("token_logprobs").at(i));
  }
}

TEST(LogprobsTest, B034ChatShape) {
  ApiRig rig(CpuOptions());
  const std::string body =
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":40,"temperature":0)";
  EXPECT_EQ(Choice(rig.Ask(kChat, body + "}")).at("logprobs"), nullptr);
  const json::value choice = Choice(rig.Ask(kChat, body + R"(,"logprobs":true,"top_logprobs":2})"));
  const json::array& content = choice.at("logprobs").at("content").as_array();
  const Said said = Direct(rig.tokenizer().Encode("<user>hi\n<assistant>", false), Greedy(40, 2));
  ASSERT_EQ(content.size(), said.ids.size());
  std::string bytes;
  for (size_t i = 0; i < content.size(); ++i) {
    EXPECT_EQ(Float(content[i].at("logprob")), said.logprobs[i].chosen.logprob);
    const json::array& top = content[i].at("top_logprobs").as_array();
    ASSERT_EQ(top.size(), 2u);
    EXPECT_EQ(Float(top[1].at("logprob")), said.logprobs[i].top[1].logprob);
    if (rig.tokenizer().IsSpecial(said.ids[i])) continue;
    for (const json::value& byte : content[i].at("bytes").as_array()) {
      bytes += static_cast<char>(byte.to_number<int>());
    }
  }
  // The bytes are exact where the tokens' texts are not.
  std::string text;
  AppendLossy(bytes, text);
  EXPECT_EQ(View(choice.at("message").at("content")), text);
  // Without alternatives the lists are there, and empty.
  const json::value none = Choice(rig.Ask(kChat, body + R"(,"logprobs":true})"));
  EXPECT_EQ(none.at("logprobs").at("content").at(0).at("top_logprobs"), json::value(json::array()));
}

TEST(LogprobsTest, B028APromptIsScoredWithoutATokenMore) {
  ApiRig rig(CpuOptions());
  const json::object answer =
      rig.Ask(kCompletions, R"({"prompt":"Hello","echo":true,"max_tokens":0,"logprobs":1})");
  const json::value choice = Choice(answer);
  EXPECT_EQ(choice.at("text"), "Hello");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 0);
  const json::value& logprobs = choice.at("logprobs");
  EXPECT_EQ(logprobs.at("tokens"), json::parse(R"(["H","e","l","l","o"])"));
  EXPECT_EQ(logprobs.at("text_offset"), json::parse("[0,1,2,3,4]"));
  EXPECT_EQ(logprobs.at("token_logprobs").at(0), nullptr);
  EXPECT_EQ(logprobs.at("top_logprobs").at(0), nullptr);
  for (int i = 1; i < 5; ++i) {
    EXPECT_LT(Float(logprobs.at("token_logprobs").at(i)), 0);
    EXPECT_GE(logprobs.at("top_logprobs").at(i).as_object().size(), 1u);
  }
  const json::value bare =
      Choice(rig.Ask(kCompletions, R"({"prompt":"Hello","echo":true,"max_tokens":0})"));
  EXPECT_EQ(bare.at("text"), "Hello");
  EXPECT_EQ(bare.at("logprobs"), nullptr);
  const auto chunks =
      rig.Stream(kCompletions, R"({"prompt":"Hello","echo":true,"max_tokens":0,"stream":true})");
  EXPECT_EQ(JoinedTexts(chunks, 1)[0], "Hello");
  EXPECT_EQ(chunks.back().at("choices").at(0).at("finish_reason"), "length");
}

TEST(LogprobsTest, AnEchoScoresThePromptAsGenerationDoes) {
  ApiRig rig(CpuOptions());
  const Said said = Direct({TokenId(72)}, Greedy(6, 1));
  std::string ids = "72";
  for (const TokenId id : said.ids) ids += "," + std::to_string(id.value());
  const json::value logprobs =
      Choice(rig.Ask(kCompletions,
                     R"({"echo":true,"max_tokens":0,"logprobs":1,"prompt":[)" + ids + "]}"))
          .at("logprobs");
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(Float(logprobs.at("token_logprobs").at(i + 1)), said.logprobs[i].chosen.logprob,
                1e-4);
  }
}

TEST(LogprobsTest, B031B032OffsetsCountCharactersAndGoOnAfterTheEcho) {
  ApiRig rig(CpuOptions());
  for (const char* echo : {"true", "false"}) {
    const std::string body = R"({"prompt":"aé€b","max_tokens":30,"logprobs":1,"seed":5,"echo":)" +
                             std::string(echo) + R"(,"ignore_eos":true)";
    const json::value whole = Choice(rig.Ask(kCompletions, body + "}"));
    const json::value& logprobs = whole.at("logprobs");
    const bool echoes = std::string_view(echo) == "true";
    // Bytes: a, two of é, three of €, b.
    const std::vector<int> prompt = {0, 1, 1, 2, 2, 2, 3};
    const json::array& offsets = logprobs.at("text_offset").as_array();
    ASSERT_EQ(offsets.size(), echoes ? prompt.size() + 30 : 30);
    for (size_t i = 0; echoes && i < prompt.size(); ++i) EXPECT_EQ(offsets[i], prompt[i]);
    EXPECT_EQ(offsets[echoes ? prompt.size() : 0], echoes ? 4 : 0);
    for (size_t i = 1; i < offsets.size(); ++i) {
      EXPECT_LE(offsets[i - 1].to_number<int>(), offsets[i].to_number<int>());
    }
    // The chunks' lists joined are the whole answer's.
    std::map<std::string, json::array> joined;
    const auto chunks = rig.Stream(kCompletions, body + R"(,"stream":true})");
    for (const json::object& chunk : chunks) {
      const json::value& part = chunk.at("choices").at(0).at("logprobs");
      if (part.is_null()) continue;
      for (const auto& entry : part.as_object()) {
        json::array& list = joined[std::string(entry.key())];
        for (const json::value& item : entry.value().as_array()) list.push_back(item);
      }
    }
    for (const auto& entry : logprobs.as_object()) {
      EXPECT_EQ(json::value(joined[std::string(entry.key())]), entry.value()) << entry.key();
    }
    EXPECT_EQ(JoinedTexts(chunks, 1)[0], View(whole.at("text")));
  }
}

TEST(LogprobsTest, PromptLogprobsInVllmsShape) {
  ApiRig rig(CpuOptions());
  const json::value list = Choice(rig.Ask(kCompletions, R"({"prompt":[72,105,33],"max_tokens":1,
                                                            "prompt_logprobs":1})"))
                               .at("prompt_logprobs");
  ASSERT_EQ(list.as_array().size(), 3u);
  EXPECT_EQ(list.at(0), nullptr);
  const json::object& second = list.at(1).at("105").as_object();
  EXPECT_EQ(second.at("decoded_token"), "i");
  EXPECT_GE(second.at("rank").to_number<int>(), 1);
  EXPECT_LT(Float(second.at("logprob")), 0);
  const json::object chat = rig.Ask(
      kChat, R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"prompt_logprobs":0})");
  EXPECT_EQ(chat.at("prompt_logprobs").as_array().size(),
            chat.at("usage").at("prompt_tokens").to_number<size_t>());
}

}  // namespace
}  // namespace spry
