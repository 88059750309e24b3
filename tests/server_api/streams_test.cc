// Answers in chunks: together they say what the whole answer says.
#include <gtest/gtest.h>

#include <map>

#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

// How often each choice says its finish reason.
std::map<int, int> Finishes(const std::vector<json::object>& chunks) {
  std::map<int, int> finishes;
  for (const json::object& chunk : chunks) {
    for (const json::value& choice : chunk.at("choices").as_array()) {
      int& count = finishes[choice.at("index").to_number<int>()];
      EXPECT_EQ(count, 0) << "a chunk after the finish";
      count += choice.at("finish_reason").is_null() ? 0 : 1;
    }
  }
  return finishes;
}

TEST(StreamsTest, AChatInChunksFieldByField) {
  ApiRig rig;
  const auto chunks = rig.Stream(
      kChat, R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"stream":true})");
  const auto ids = rig.Expected(rig.tokenizer().Encode("<user>hi\n<assistant>", false), 2);
  const auto chunk = [](json::value delta, json::value finish) {
    return json::object{{"id", "chatcmpl-r1"},
                        {"object", "chat.completion.chunk"},
                        {"model", "tiny"},
                        {"system_fingerprint", "spry-test"},
                        {"choices",
                         {{{"index", 0},
                           {"delta", std::move(delta)},
                           {"logprobs", nullptr},
                           {"finish_reason", std::move(finish)},
                           {"stop_reason", nullptr}}}}};
  };
  ASSERT_EQ(chunks.size(), 3u);
  const json::object expected[] = {chunk({{"role", "assistant"}, {"content", ""}}, nullptr),
                                   chunk({{"content", rig.Text({ids[0]})}}, nullptr),
                                   chunk({{"content", rig.Text({ids[1]})}}, "length")};
  for (int i = 0; i < 3; ++i) {
    json::object found = chunks[i];
    EXPECT_TRUE(found.at("created").is_int64());
    found.erase("created");
    EXPECT_EQ(json::value(found), json::value(expected[i]));
  }
}

TEST(StreamsTest, ACompletionInChunks) {
  ApiRig rig;
  const auto chunks = rig.Stream(kCompletions, R"({"prompt":[300],"stream":true})");
  EXPECT_EQ(chunks.size(), 16u);
  EXPECT_EQ(chunks[0].at("object"), "text_completion");
  EXPECT_FALSE(chunks[0].contains("usage"));
  EXPECT_EQ(JoinedTexts(chunks, 1)[0], rig.Text(rig.Expected({TokenId(300)}, 16)));
}

TEST(StreamsTest, B043B044EveryChoiceHasItsDeltasAndOneFinish) {
  ApiRig rig;
  const auto chunks = rig.Stream(
      kChat, R"({"messages":[{"role":"user","content":"a"}],"n":3,"stream":true,"max_tokens":7})");
  EXPECT_EQ(Finishes(chunks), (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}}));
  const auto prompt = rig.tokenizer().Encode("<user>a\n<assistant>", false);
  EXPECT_EQ(JoinedTexts(chunks, 3), std::vector<std::string>(3, rig.Text(rig.Expected(prompt, 7))));
  int roles = 0;
  for (const json::object& chunk : chunks) {
    roles += chunk.at("choices").at(0).at("delta").as_object().contains("role") ? 1 : 0;
  }
  EXPECT_EQ(roles, 3);
}

TEST(StreamsTest, B046UsageComesInAChunkOfItsOwnWhenAskedFor) {
  ApiRig rig;
  const std::string body = R"({"prompt":[300,301],"max_tokens":3,"stream":true)";
  auto chunks = rig.Stream(kCompletions, body + R"(,"stream_options":{"include_usage":true}})");
  ASSERT_EQ(chunks.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(chunks[i].at("usage"), nullptr);
  EXPECT_EQ(chunks[3].at("choices"), json::value(json::array()));
  EXPECT_EQ(chunks[3].at("usage").at("prompt_tokens"), 2);
  EXPECT_EQ(chunks[3].at("usage").at("total_tokens"), 5);

  chunks = rig.Stream(kCompletions, body + R"(,"stream_options":{"include_usage":false}})");
  ASSERT_EQ(chunks.size(), 3u);
  for (const json::object& chunk : chunks) EXPECT_FALSE(chunk.contains("usage"));

  chunks = rig.Stream(kCompletions, body + R"(,"stream_options":{"continuous_usage_stats":true}})");
  ASSERT_EQ(chunks.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(chunks[i].at("usage").at("completion_tokens"), i + 1);

  const json::object error =
      rig.Refusal(kCompletions, R"({"prompt":[300],"stream_options":{"include_usage":true}})");
  EXPECT_EQ(error.at("param"), "stream_options");
  const json::object nested =
      rig.Refusal(kCompletions, body + R"(,"stream_options":{"include_usage":3}})");
  EXPECT_EQ(nested.at("param"), "stream_options.include_usage");
}

TEST(StreamsTest, B047TheLastChunkHasTheFinishReason) {
  ApiRig rig;
  auto chunks = rig.Stream(kCompletions, R"({"prompt":[300],"max_tokens":1,"stream":true})");
  EXPECT_EQ(chunks.back().at("choices").at(0).at("finish_reason"), "length");
  // A stop string that swallows all of the last delta.
  const auto ids = rig.Expected({TokenId(300)}, 3);
  const std::string stop = rig.Text({ids[1]});
  chunks = rig.Stream(kCompletions, R"({"prompt":[300],"stream":true,"stop":")" + stop + "\"}");
  EXPECT_EQ(Finishes(chunks), (std::map<int, int>{{0, 1}}));
  const json::value& last = chunks.back().at("choices").at(0);
  EXPECT_EQ(last.at("finish_reason"), "stop");
  EXPECT_EQ(last.at("stop_reason"), json::value(stop));
  EXPECT_EQ(JoinedTexts(chunks, 1)[0], rig.Text({ids[0]}));
}

TEST(StreamsTest, B022WhatWasHeldBackComesAtTheEnd) {
  ApiRig rig;
  const auto ids = rig.Expected({TokenId(300)}, 4);
  // Begins as the last token ends, and never comes.
  const std::string stop = std::to_string(ids[3].value()).substr(1) + "###";
  const auto chunks = rig.Stream(
      kCompletions, R"({"prompt":[300],"max_tokens":4,"stream":true,"stop":")" + stop + "\"}");
  EXPECT_EQ(JoinedTexts(chunks, 1)[0], rig.Text(ids));
}

TEST(StreamsTest, B020NoChunkHasHalfACharacter) {
  ApiRig rig({.vocab_size = 320});  // the null device says lone bytes of characters
  for (int id = 0; id < 30; ++id) {
    const auto chunks =
        rig.Stream(kCompletions, R"({"max_tokens":60,"stream":true,"ignore_eos":true,"prompt":[)" +
                                     std::to_string(id) + "]}");
    EXPECT_EQ(JoinedTexts(chunks, 1)[0], rig.Text(rig.Expected({TokenId(id)}, 60)));
  }
}

TEST(StreamsTest, ChunksWithTokenIdsMissNone) {
  ApiRig rig({.vocab_size = 320});
  const auto chunks =
      rig.Stream(kCompletions, R"({"max_tokens":60,"stream":true,"ignore_eos":true,"prompt":[7],
                        "return_token_ids":true})");
  std::vector<TokenId> ids;
  for (const json::object& chunk : chunks) {
    for (const json::value& id : chunk.at("choices").at(0).at("token_ids").as_array()) {
      ids.emplace_back(id.to_number<int>());
    }
  }
  EXPECT_EQ(ids, rig.Expected({TokenId(7)}, 60));
  EXPECT_EQ(chunks[0].at("choices").at(0).at("prompt_token_ids"), json::value(json::array{7}));
}

TEST(StreamsTest, AnEchoIsTheFirstChunk) {
  ApiRig rig;
  const auto chunks =
      rig.Stream(kCompletions, R"({"prompt":"héy","max_tokens":2,"stream":true,"echo":true})");
  EXPECT_EQ(View(chunks[0].at("choices").at(0).at("text")), "héy");
  const auto prompt = rig.tokenizer().Encode("héy", true);
  EXPECT_EQ(JoinedTexts(chunks, 1)[0], "héy" + rig.Text(rig.Expected(prompt, 2)));
}

TEST(StreamsTest, AStepIsOneWrite) {
  ApiRig rig;
  const auto exchange = rig.Post(
      kChat, R"({"messages":[{"role":"user","content":"a"}],"n":4,"stream":true,"max_tokens":9})");
  // Four choices, each with a chunk a step, in one flush a turn: at most one a token of a choice.
  EXPECT_LE(exchange->flushes(), 4 * 9);
  EXPECT_GT(exchange->Events().size(), 36u);
}

TEST(StreamsTest, AClientThatLeavesCancelsAllItsChoices) {
  ApiRig rig({.step_millis = 1});
  for (const char* stream : {"true", "false"}) {
    const auto left = rig.Send("POST", kCompletions,
                               std::string(R"({"prompt":[[300],[301]],"n":2,"max_tokens":100,)") +
                                   R"("stream":)" + stream + "}");
    const auto other =
        rig.Send("POST", kCompletions, R"({"prompt":[302],"max_tokens":60,"stream":true})");
    rig.Turn();
    EXPECT_EQ(rig.endpoints().running(), 2);
    left->Leave();
    EXPECT_EQ(rig.endpoints().running(), 1);
    EXPECT_EQ(rig.engine().live(), 1);
    EXPECT_EQ(rig.ended().back().finish, "abort");
    rig.Run(*other);
    EXPECT_EQ(other->Events().size(), 61u);
    EXPECT_EQ(rig.endpoints().running(), 0);
  }
}

}  // namespace
}  // namespace spry
