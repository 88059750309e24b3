// Answers that are sent whole, field by field.
#include <gtest/gtest.h>

#include <ctime>

#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

std::vector<TokenId> Ids(std::initializer_list<int> ids) {
  std::vector<TokenId> list;
  for (const int id : ids) list.emplace_back(id);
  return list;
}

json::array ToJson(const std::vector<TokenId>& ids) {
  json::array list;
  for (const TokenId id : ids) list.emplace_back(id.value());
  return list;
}

TEST(AnswersTest, ACompletionIsWholeAndExact) {
  ApiRig rig;
  json::object answer = rig.Ask(kCompletions, R"({"model":"tiny","prompt":[300,301]})");
  EXPECT_NEAR(answer.at("created").to_number<double>(), static_cast<double>(std::time(nullptr)),
              60);
  answer.erase("created");
  const std::string text = rig.Text(rig.Expected(Ids({300, 301}), 16));
  EXPECT_EQ(json::value(answer), (json::value{
                                     {"id", "cmpl-r1"},
                                     {"object", "text_completion"},
                                     {"model", "tiny"},
                                     {"system_fingerprint", "spry-test"},
                                     {"choices",
                                      {{{"index", 0},
                                        {"text", text},
                                        {"logprobs", nullptr},
                                        {"finish_reason", "length"},
                                        {"stop_reason", nullptr}}}},
                                     {"usage",
                                      {{"prompt_tokens", 2},
                                       {"completion_tokens", 16},
                                       {"total_tokens", 18},
                                       {"prompt_tokens_details", {{"cached_tokens", 0}}}}},
                                 }));
}

TEST(AnswersTest, AChatIsWholeAndExact) {
  ApiRig rig;
  json::object answer = rig.Ask(
      kChat, R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"request_id":"mine"})");
  answer.erase("created");
  const auto prompt = rig.tokenizer().Encode("<user>hi\n<assistant>", false);
  const auto size = static_cast<int>(prompt.size());
  EXPECT_EQ(json::value(answer), (json::value{
                                     {"id", "chatcmpl-mine"},
                                     {"object", "chat.completion"},
                                     {"model", "tiny"},
                                     {"system_fingerprint", "spry-test"},
                                     {"choices",
                                      {{{"index", 0},
                                        {"message",
                                         {{"role", "assistant"},
                                          {"content", rig.Text(rig.Expected(prompt, 3))},
                                          {"refusal", nullptr}}},
                                        {"logprobs", nullptr},
                                        {"finish_reason", "length"},
                                        {"stop_reason", nullptr}}}},
                                     {"usage",
                                      {{"prompt_tokens", size},
                                       {"completion_tokens", 3},
                                       {"total_tokens", size + 3},
                                       {"prompt_tokens_details", {{"cached_tokens", 0}}}}},
                                 }));
}

TEST(AnswersTest, AChatWithoutLimitFillsWhatFits) {
  ApiRig rig;
  const json::object answer = rig.Ask(kChat, R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(answer.at("usage").at("total_tokens"), 128);
}

TEST(AnswersTest, EveryFormOfPrompt) {
  ApiRig rig;
  const auto texts = [&](const char* prompt) {
    const json::object answer =
        rig.Ask(kCompletions, std::string(R"({"max_tokens":4,"prompt":)") + prompt + "}");
    std::vector<std::string> list;
    for (const json::value& choice : answer.at("choices").as_array()) {
      EXPECT_EQ(choice.at("index"), list.size());
      list.emplace_back(View(choice.at("text")));
    }
    return list;
  };
  const auto expected = [&](std::string_view text) {
    return rig.Text(rig.Expected(rig.tokenizer().Encode(text, true), 4));
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(R"("abc")"), Texts{expected("abc")});
  EXPECT_EQ(texts(R"(["abc","d"])"), (Texts{expected("abc"), expected("d")}));
  EXPECT_EQ(texts("[97,98,99]"), Texts{expected("abc")});
  EXPECT_EQ(texts("[[97,98,99],[100]]"), (Texts{expected("abc"), expected("d")}));
  EXPECT_EQ(texts("[97.0,98,99]"), Texts{expected("abc")});
}

TEST(AnswersTest, B044EachChoiceHasItsIndexAndUsageCountsThePromptOnce) {
  ApiRig rig;
  const json::object answer =
      rig.Ask(kCompletions, R"({"prompt":[[300],[301,302]],"n":3,"seed":1,"max_tokens":5})");
  const json::array& choices = answer.at("choices").as_array();
  ASSERT_EQ(choices.size(), 6u);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(choices[i].at("index"), i);
    const auto prompt = i < 3 ? Ids({300}) : Ids({301, 302});
    EXPECT_EQ(View(choices[i].at("text")), rig.Text(rig.Expected(prompt, 5)));
  }
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 30);
}

TEST(AnswersTest, B040NullCountsAsAbsent) {
  ApiRig rig;
  const json::object answer =
      rig.Ask(kCompletions,
              R"({"prompt":[300],"model":null,"temperature":null,"top_p":null,"n":null,"stop":null,
          "max_tokens":null,"logit_bias":null,"stream":null,"stream_options":null,"seed":null,
          "logprobs":null,"echo":null,"suffix":null,"user":null,"best_of":null,"tools":null,
          "presence_penalty":null,"allowed_token_ids":null,"bad_words":null,"priority":null})");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 16);
  EXPECT_TRUE(rig.ignored().empty());
}

TEST(AnswersTest, OfANameGivenTwiceTheLastOneCounts) {
  ApiRig rig;
  const json::object answer =
      rig.Ask(kCompletions, R"({"prompt":[300],"max_tokens":9,"max_tokens":2})");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 2);
}

TEST(AnswersTest, B041MaxCompletionTokensWins) {
  ApiRig rig;
  for (const char* fields :
       {R"("max_completion_tokens":3)", R"("max_completion_tokens":3,"max_tokens":10)"}) {
    const json::object answer = rig.Ask(
        kChat, std::string(R"({"messages":[{"role":"user","content":"hi"}],)") + fields + "}");
    EXPECT_EQ(answer.at("usage").at("completion_tokens"), 3);
    EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "length");
  }
}

TEST(AnswersTest, AStopStringEndsTheTextAndTheRequest) {
  ApiRig rig;
  const std::vector<TokenId> ids = rig.Expected(Ids({300}), 20);
  const std::string stop = "w" + std::to_string(ids[4].value());
  const std::string before = rig.Text({ids.begin(), ids.begin() + 4}) + " ";
  const std::string body = R"({"prompt":[300],"max_tokens":100,"stop":")" + stop + "\"";
  json::object answer = rig.Ask(kCompletions, body + "}");
  json::value choice = answer.at("choices").at(0);
  EXPECT_EQ(View(choice.at("text")), before);
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("stop_reason"), json::value(stop));
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 5);
  EXPECT_EQ(rig.engine().live(), 0);

  choice =
      rig.Ask(kCompletions, body + R"(,"include_stop_str_in_output":true})").at("choices").at(0);
  EXPECT_EQ(View(choice.at("text")), before + stop);
  // Not looked for in the first tokens.
  answer = rig.Ask(kCompletions, body + R"(,"min_tokens":8,"max_tokens":12})");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 12);
}

TEST(AnswersTest, B023AStopIdIsCountedNotSpelledAndIsTheReason) {
  ApiRig rig;
  const std::vector<TokenId> ids = rig.Expected(Ids({300}), 6);
  const std::string id = std::to_string(ids[3].value());
  const json::object answer =
      rig.Ask(kCompletions, R"({"prompt":[300],"max_tokens":9,"stop_token_ids":[)" + id + "]}");
  const json::value& choice = answer.at("choices").at(0);
  EXPECT_EQ(View(choice.at("text")), rig.Text({ids.begin(), ids.begin() + 3}));
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("stop_reason"), ids[3].value());
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 4);
}

TEST(AnswersTest, B056EveryEndIdOfTheModelEndsAnAnswer) {
  const std::vector<TokenId> ids = ApiRig().Expected(Ids({300}), 6);
  ApiRig rig({.eos_tokens = {TokenId(kEos), ids[2]}});
  json::object answer = rig.Ask(kCompletions, R"({"prompt":[300],"max_tokens":9})");
  const json::value choice = answer.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("stop_reason"), nullptr);
  EXPECT_EQ(View(choice.at("text")), rig.Text({ids.begin(), ids.begin() + 2}));
  answer = rig.Ask(kCompletions, R"({"prompt":[300],"max_tokens":9,"ignore_eos":true})");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 9);
}

TEST(AnswersTest, B055OneBosOnChatAndOneOnCompletions) {
  ApiRig rig({.add_bos = true, .chat_template = "{{ bos_token }}{{ messages[0].content }}"});
  json::object answer =
      rig.Ask(kChat, R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1})");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
  const auto tokens = [&](const char* body) { return rig.Ask("/tokenize", body).at("tokens"); };
  EXPECT_EQ(tokens(R"({"messages":[{"role":"user","content":"hi"}]})"),
            json::parse("[256,104,105]"));
  EXPECT_EQ(tokens(R"({"prompt":"hi"})"), json::parse("[256,104,105]"));
  EXPECT_EQ(tokens(R"({"prompt":"hi","add_special_tokens":false})"), json::parse("[104,105]"));
  answer = rig.Ask(kCompletions, R"({"prompt":"hi","max_tokens":1})");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
  answer = rig.Ask(kCompletions, R"({"prompt":"hi","max_tokens":1,"add_special_tokens":false})");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 2);
}

std::string PromptOf(ApiRig& rig, const std::string& dialogue) {
  const json::object tokens = rig.Ask("/tokenize", dialogue);
  return std::string(
      View(rig.Ask("/detokenize", json::serialize(json::object{{"tokens", tokens.at("tokens")}}))
               .at("prompt")));
}

TEST(AnswersTest, B058PartsAreJoinedForATemplateOfStrings) {
  ApiRig rig;
  EXPECT_EQ(PromptOf(rig, R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},
                              {"type":"text","text":"b"}]}]})"),
            "<user>a\nb\n<assistant>");
}

TEST(AnswersTest, B059NullContentIsEmptyText) {
  ApiRig rig;
  EXPECT_EQ(PromptOf(rig, R"({"messages":[{"role":"user","content":"a"},{"role":"assistant",
      "content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"x\":1}"}}]},
      {"role":"tool","content":"7"}]})"),
            "<user>a\n<assistant>\n<tool>7\n<assistant>");
}

TEST(AnswersTest, ArgumentsOfToolCallsReachTheTemplateAsObjects) {
  ApiRig rig({.chat_template = "{% for c in messages[0].tool_calls %}"
                               "{{ c.function.arguments.x + 1 }}{% endfor %}"});
  EXPECT_EQ(PromptOf(rig, R"({"messages":[{"role":"assistant",
      "tool_calls":[{"function":{"name":"f","arguments":"{\"x\":41}"}}]}]})"),
            "42");
}

TEST(AnswersTest, VariablesOfTheTemplate) {
  ApiRig rig({.chat_template = "{{ thinking }}|{{ reasoning_effort }}|{{ messages[0].name }}"});
  EXPECT_EQ(PromptOf(rig, R"({"messages":[{"role":"user","content":"a","name":"Bo"}],
      "chat_template_kwargs":{"thinking":"off"},"reasoning_effort":"low"})"),
            "off|low|Bo");
}

TEST(AnswersTest, TheFinalMessageGoesOnWhenAsked) {
  ApiRig rig;
  const char* messages =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"So"}],)";
  EXPECT_EQ(PromptOf(rig, std::string(messages) + R"("continue_final_message":true})"),
            "<user>q\n<assistant>So");
  EXPECT_EQ(PromptOf(rig, std::string(messages) + R"("add_generation_prompt":false})"),
            "<user>q\n<assistant>So\n");
  const json::object answer =
      rig.Ask(kChat, std::string(messages) +
                         R"("continue_final_message":true,"echo":true,"max_tokens":2})");
  const auto prompt = rig.tokenizer().Encode("<user>q\n<assistant>So", false);
  EXPECT_EQ(View(answer.at("choices").at(0).at("message").at("content")),
            "So" + rig.Text(rig.Expected(prompt, 2)));
}

TEST(AnswersTest, EchoPutsThePromptInFront) {
  ApiRig rig({.add_bos = true});
  const std::string rest = rig.Text(rig.Expected(rig.tokenizer().Encode("hi é", true), 2));
  json::object answer = rig.Ask(kCompletions, R"({"prompt":"hi é","echo":true,"max_tokens":2})");
  EXPECT_EQ(View(answer.at("choices").at(0).at("text")), "hi é" + rest);
  answer = rig.Ask(kCompletions, R"({"prompt":[256,104,105],"echo":true,"max_tokens":1})");
  EXPECT_TRUE(View(answer.at("choices").at(0).at("text")).starts_with("hi w"));
}

TEST(AnswersTest, TokenIdsWhenAskedFor) {
  ApiRig rig;
  json::object answer =
      rig.Ask(kCompletions, R"({"prompt":[[300],[301]],"max_tokens":3,"return_token_ids":true})");
  for (int i = 0; i < 2; ++i) {
    const json::value& choice = answer.at("choices").at(i);
    EXPECT_EQ(choice.at("token_ids"), json::value(ToJson(rig.Expected(Ids({300 + i}), 3))));
    EXPECT_EQ(choice.at("prompt_token_ids"), json::value(json::array{300 + i}));
  }
  answer = rig.Ask(kChat, R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3,
                              "return_token_ids":true})");
  const auto prompt = rig.tokenizer().Encode("<user>hi\n<assistant>", false);
  EXPECT_EQ(answer.at("prompt_token_ids"), json::value(ToJson(prompt)));
  EXPECT_EQ(answer.at("choices").at(0).at("token_ids"),
            json::value(ToJson(rig.Expected(prompt, 3))));
}

TEST(AnswersTest, SpecialTokensAreSkippedUnlessAskedFor) {
  // Special tokens in the range of what the null device says.
  ApiRig rig({.vocab_size = 320});
  const std::vector<TokenId> ids = rig.Expected(Ids({40}), 100);
  constexpr bool kKeep = false;
  const std::string kept = rig.tokenizer().Decode(ids, kKeep);
  ASSERT_NE(kept, rig.Text(ids)) << "no special token among them";
  const std::string body = R"({"prompt":[40],"max_tokens":100,"ignore_eos":true)";
  EXPECT_EQ(View(rig.Ask(kCompletions, body + "}").at("choices").at(0).at("text")), rig.Text(ids));
  EXPECT_EQ(View(rig.Ask(kCompletions, body + R"(,"skip_special_tokens":false})")
                     .at("choices")
                     .at(0)
                     .at("text")),
            kept);
}

TEST(AnswersTest, B026SpecialTokensStopOnlyWhereTheyAreText) {
  ApiRig rig({.vocab_size = 320});
  const std::vector<TokenId> ids = rig.Expected(Ids({40}), 100);
  int at = 0;
  while (!rig.tokenizer().IsSpecial(ids.at(at))) ++at;
  const std::string body = R"({"prompt":[40],"max_tokens":100,"ignore_eos":true,"stop":[")" +
                           std::string(rig.tokenizer().TokenBytes(ids[at])) + "\"]";
  json::object answer = rig.Ask(kCompletions, body + "}");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 100);
  answer = rig.Ask(kCompletions, body + R"(,"skip_special_tokens":false})");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), at + 1);
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "stop");
}

TEST(AnswersTest, B067CacheSaltsAreKeptApart) {
  ApiRig rig;
  std::string prompt = "300";
  for (int i = 1; i < 40; ++i) prompt += "," + std::to_string(300 + i);
  const auto cached = [&](const char* salt) {
    const json::object answer = rig.Ask(
        kCompletions, R"({"max_tokens":1,"prompt":[)" + prompt + "],\"cache_salt\":" + salt + "}");
    return answer.at("usage").at("prompt_tokens_details").at("cached_tokens").to_number<int>();
  };
  EXPECT_EQ(cached(R"("a")"), 0);
  EXPECT_EQ(cached(R"("b")"), 0);
  EXPECT_EQ(cached(R"("a")"), 32);
  EXPECT_EQ(cached("null"), 0);
  EXPECT_EQ(cached(R"("")"), 32) << "an empty salt is none";
}

TEST(AnswersTest, TruncatedPromptsKeepTheirEnd) {
  ApiRig rig;
  const auto text = [&](const char* fields) {
    const json::object answer = rig.Ask(
        kCompletions, std::string(R"({"prompt":[300,301,302],"max_tokens":2,)") + fields + "}");
    return std::string(View(answer.at("choices").at(0).at("text")));
  };
  EXPECT_EQ(text(R"("truncate_prompt_tokens":2)"), rig.Text(rig.Expected(Ids({301, 302}), 2)));
  EXPECT_EQ(text(R"("truncate_prompt_tokens":2,"truncation_side":"right")"),
            rig.Text(rig.Expected(Ids({300, 301}), 2)));
}

TEST(AnswersTest, B019TextCutInMidCharacterIsStillValid) {
  ApiRig rig({.vocab_size = 320});  // the null device says lone bytes of characters
  int replaced = 0;
  for (int id = 0; id < 60; ++id) {
    const json::object answer =
        rig.Ask(kCompletions,
                R"({"max_tokens":1,"ignore_eos":true,"prompt":[)" + std::to_string(id) + "]}");
    const json::value& choice = answer.at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_EQ(View(choice.at("text")), rig.Text(rig.Expected(Ids({id}), 1)));
    replaced += View(choice.at("text")) == "\uFFFD" ? 1 : 0;
  }
  EXPECT_GT(replaced, 10);
}

TEST(AnswersTest, ReportsSayHowRequestsEnded) {
  ApiRig rig;
  rig.Ask(kCompletions, R"({"prompt":[300,301],"max_tokens":3})");
  ASSERT_EQ(rig.ended().size(), 1u);
  EXPECT_EQ(rig.ended()[0].finish, "length");
  EXPECT_EQ(rig.ended()[0].report.usage.completion_tokens, 3);
  EXPECT_TRUE(rig.ended()[0].report.first_token_seconds.has_value());
}

}  // namespace
}  // namespace spry
