#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "tests/text/tiny_vocabulary.h"
#include "text/jinja/json_text.h"
#include "text/tokenizer.h"

namespace spry {
namespace {

using testing::HasSubstr;

jinja::Value Json(std::string_view text) {
  auto value = jinja::ReadJson(text, "the test's JSON");
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? *value : jinja::Value();
}

ChatInput Input(std::string_view messages) {
  ChatInput input;
  input.messages = Json(messages);
  input.now = std::tm{.tm_mday = 30, .tm_mon = 10, .tm_year = 126};
  return input;
}

ChatTemplate Made(std::string text) {
  auto chat = ChatTemplate::Create(
      {.text = std::move(text), .special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  return *std::move(chat);
}

// The text, or the error's message.
std::string Rendered(const ChatTemplate& chat, const ChatInput& input) {
  const auto text = chat.Render(input);
  return text.ok() ? *text : text.status().message();
}

std::string Rendered(std::string text, std::string_view messages) {
  return Rendered(Made(std::move(text)), Input(messages));
}

constexpr const char* kEach =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

TEST(ChatTemplate, RendersADialogue) {
  ChatInput input = Input(R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(Rendered(Made(kEach), input), "[user]Hi</s>");
  input.add_generation_prompt = true;
  EXPECT_EQ(Rendered(Made(kEach), input), "[user]Hi</s>[assistant]");
}

TEST(ChatTemplate, FurtherVariablesGoOverSpecialTokens) {
  ChatInput input = Input(R"([{"role": "user", "content": "Hi"}])");
  input.variables = *Json(R"({"eos_token": "!", "x": [1, 2]})").dict();
  EXPECT_EQ(Rendered(Made("{{ bos_token }}{{ eos_token }}{{ x }}{{ y }}"), input), "<s>![1, 2]");
}

TEST(ChatTemplate, ToolsChooseTheTemplateForTools) {
  auto chat = ChatTemplate::Create({.text = "plain", .tool_use = "{{ tools|tojson }}"});
  ASSERT_TRUE(chat.ok());
  ChatInput input = Input(R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(Rendered(*chat, input), "plain");
  input.tools = Json(R"([{"name": "é<"}])");
  EXPECT_EQ(Rendered(*chat, input), R"([{"name": "é<"}])");
}

TEST(ChatTemplate, BadInputIsRefused) {
  EXPECT_EQ(Rendered(kEach, "[]"), "messages is empty; expected at least one message");
  EXPECT_EQ(Rendered(kEach, R"(["Hi"])"),
            "messages[0] must be an object, found a value of type str");
  EXPECT_EQ(Rendered(kEach, R"({"role": "user"})"),
            "messages must be a list, found a value of type dict");
  ChatInput input = Input(R"([{"role": "user", "content": "Hi"}])");
  input.tools = Json("[1]");
  EXPECT_EQ(Rendered(Made(kEach), input), "tools[0] must be an object, found a value of type int");
  input = Input(R"([{"role": "user", "content": "Hi"}])");
  input.add_generation_prompt = input.continue_final_message = true;
  EXPECT_THAT(Rendered(Made(kEach), input), HasSubstr("both set"));
}

TEST(ChatTemplate, BrokenTemplatesNameTheLine) {
  const auto error = [](std::string text) {
    const auto chat = ChatTemplate::Create({.text = std::move(text)});
    return chat.ok() ? "" : chat.status().message();
  };
  EXPECT_EQ(error("a\n{% if x %}\n{% endfor %}"),
            "chat template, line 3: found 'endfor', expected the name of a tag or the end of an "
            "open one");
  EXPECT_EQ(error("{{ a\n b }}"), "chat template, line 2: found 'b', expected '}}'");
  EXPECT_EQ(error("{{ a|frobnicate }}"), "chat template, line 1: there is no filter 'frobnicate'");
  EXPECT_EQ(error("{{ a is odder }}"), "chat template, line 1: there is no test 'odder'");
  EXPECT_EQ(error("{% include 'x' %}"),
            "chat template, line 1: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(error("{{ 'x }}"), "chat template, line 1: a string lacks its closing quote");
}

TEST(ChatTemplate, FinalMessageGoesOn) {
  ChatInput input =
      Input(R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I am "}])");
  input.continue_final_message = true;
  EXPECT_EQ(Rendered(Made(kEach), input), "[user]Hi</s>[assistant]I am ");
  const std::string trims = "{% for m in messages %}<{{ m.content|trim }}>{% endfor %}";
  EXPECT_EQ(Rendered(Made(trims), input), "<Hi><I am");
  EXPECT_THAT(Rendered(Made("{{ messages[0].content }}"), input), HasSubstr("no place to go on"));
  input.messages = Json(R"([{"role": "assistant", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]}])");
  EXPECT_EQ(Rendered(Made("{% for p in messages[0].content %}{{ p.text }};{% endfor %}"), input),
            "a;b");
}

TEST(ChatTemplate, ReasoningStandsUnderBothNames) {
  EXPECT_EQ(Rendered("{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}",
                     R"([{"role": "assistant", "content": "4", "reasoning": "2 + 2"}])"),
            "2 + 2|2 + 2");
}

// From here on: faults that others have had (their numbers are those of public reports).

// vllm-project/vllm #2012, #9519: the beginning token twice on chat.
TEST(ChatTemplateFaults, ChatHasOneBeginningToken) {
  VocabSource source = ByteVocabulary();
  source.chat_template = "{{ bos_token }}{{ messages[0].content }}";
  AddedToken bos{};
  bos.id = TokenId(static_cast<int32_t>(source.pieces.size()));
  bos.content = "<begin>";
  bos.special = true;
  source.pieces.push_back(bos.content);
  source.added_tokens.push_back(bos);
  source.bos = bos.id;
  source.add_bos = true;
  const auto tokenizer = Tokenizer::Create(source);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto chat_source = ChatTemplateOf(source);
  ASSERT_TRUE(chat_source.has_value());
  const auto chat = ChatTemplate::Create(*chat_source);
  ASSERT_TRUE(chat.ok());
  const std::string text = Rendered(*chat, Input(R"([{"role": "user", "content": "a"}])"));
  EXPECT_EQ(text, "<begin>a");
  const auto beginnings = [&](std::string_view prompt, bool add_special_tokens) {
    const auto ids = (*tokenizer)->Encode(prompt, add_special_tokens);
    return std::count(ids.begin(), ids.end(), bos.id);
  };
  EXPECT_EQ(beginnings(text, /*add_special_tokens=*/false), 1);
  EXPECT_EQ(beginnings("a", /*add_special_tokens=*/true), 1);
  EXPECT_EQ(beginnings("a", /*add_special_tokens=*/false), 0);
}

// vllm-project/vllm #54486: a list of parts for a template that only knows strings.
TEST(ChatTemplateFaults, PartsForATemplateOfStrings) {
  const auto messages = Json(R"([{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"role": "assistant",
      "content": "c"}, {"role": "user"}])");
  EXPECT_FALSE(Made(kEach).takes_content_parts());
  EXPECT_FALSE(Made("{{ messages[0].content + 'x' }}").takes_content_parts());
  EXPECT_FALSE(Made("{{ messages|tojson }}").takes_content_parts());
  EXPECT_TRUE(
      Made("{% for p in messages[0].content %}{{ p.text }}{% endfor %}").takes_content_parts());
  const auto joined = JoinTextParts(messages);
  ASSERT_TRUE(joined.ok());
  ChatInput input;
  input.messages = *joined;
  EXPECT_EQ(Rendered(Made(kEach), input), "[user]a\nb</s>[assistant]c</s>[user]</s>");
  const auto image = JoinTextParts(
      Json(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(image.status().message(), HasSubstr("a part that is not text"));
}

// vllm-project/vllm #54337: null printed as None.
TEST(ChatTemplateFaults, NullContentIsEmpty) {
  EXPECT_EQ(Rendered(kEach, R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]},
      {"role": "tool", "content": "1"}])"),
            "[user]Hi</s>[assistant]</s>[tool]1</s>");
}

// tabbyAPI 281, text-generation-webui #6675: strftime_now unknown; undefined variables.
TEST(ChatTemplateFaults, TheDate) {
  const char* hello = R"([{"role": "user", "content": "Hi"}])";
  EXPECT_EQ(Rendered("{{ strftime_now('%d %B %Y') }}", hello), "30 November 2026");
  const std::string date =
      "{% if date_string is defined %}{{ date_string }}{% else %}26 Jul 2024{% endif %}";
  EXPECT_EQ(Rendered(date, hello), "26 Jul 2024");
  ChatInput input = Input(hello);
  input.variables.Set("date_string", jinja::Value::String("today"));
  EXPECT_EQ(Rendered(Made(date), input), "today");
  input.now.reset();
  const std::string year = Rendered(Made("{{ strftime_now('%Y') }}"), input);
  EXPECT_EQ(year.size(), 4u);
  EXPECT_GE(year, "2025");
}

// Jinja2Cpp #64: block lines leave nothing behind without any minus sign.
TEST(ChatTemplateFaults, BlockLinesLeaveNoLineEnds) {
  EXPECT_EQ(Rendered("{% for m in messages %}\n"
                     "    {% if m.role == 'user' %}\n"
                     "U: {{ m.content }}\n"
                     "    {% endif %}\n"
                     "{% endfor %}\n",
                     R"([{"role": "user", "content": "a"}, {"role": "x", "content": "b"},
                         {"role": "user", "content": "c"}])"),
            "U: a\nU: c\n");
}

}  // namespace
}  // namespace spry
