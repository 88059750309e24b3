#include "server/chat_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/chat_messages.h"
#include "server/completion_request.h"
#include "server/echo_offsets.h"
#include "server/sampling_request.h"

namespace spry {
namespace {

namespace json = boost::json;

// The template of the request, if it brings one and may.
void ReadTemplate(RequestFields& fields, const ServedModel& model,
                  std::optional<ChatTemplate>& own) {
  std::optional<std::string> text = fields.String("chat_template");
  if (!text) return;
  if (!model.trust_request_chat_template) {
    return fields.Fail("chat_template",
                       "this server takes no chat_template from requests; start it with "
                       "--trust-request-chat-template to allow that");
  }
  Result<ChatTemplate> made =
      ChatTemplate::Create({.text = *std::move(text), .special_tokens = model.special_texts});
  if (!made.ok()) return fields.Fail("chat_template", made.status().message());
  own = *std::move(made);
}

void ReadVariables(RequestFields& fields, ChatInput& input) {
  if (const json::object* kwargs = fields.Object("chat_template_kwargs")) {
    for (const auto& entry : *kwargs) {
      input.variables.Set(std::string_view(entry.key().data(), entry.key().size()),
                          ToJinja(entry.value()));
    }
  }
  if (std::optional<std::string> effort = fields.String("reasoning_effort")) {
    input.variables.Set("reasoning_effort", jinja::Value::String(*std::move(effort)));
  }
  if (const json::array* documents = fields.Array("documents")) {
    input.documents = ToJinja(json::value(*documents));
  }
}

void ReadEnd(RequestFields& fields, ChatInput& input) {
  const std::optional<bool> prompt = fields.Bool("add_generation_prompt");
  Assign(input.continue_final_message, fields.Bool("continue_final_message"));
  if (prompt == true && input.continue_final_message) {
    fields.Fail("continue_final_message",
                "continue_final_message and add_generation_prompt are both true; only one may be");
  }
  input.add_generation_prompt = prompt.value_or(!input.continue_final_message);
}

std::optional<ApiError> Render(const ChatTemplate& chat, ChatInput& input, std::string& text) {
  if (!chat.takes_content_parts()) {
    Result<jinja::Value> joined = JoinTextParts(input.messages);
    if (!joined.ok()) return ToApiError(joined.status(), "messages");
    input.messages = *std::move(joined);
  }
  Result<std::string> rendered = chat.Render(input);
  if (!rendered.ok()) return ToApiError(rendered.status(), "messages");
  text = *std::move(rendered);
  return {};
}

// logprobs and top_logprobs, which say "how many" together.
void ReadLogprobs(RequestFields& fields, ApiRequest& request) {
  const bool wanted = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", {0, kMaxLogprobs});
  if (top.value_or(0) > 0 && !wanted) {
    return fields.Fail("top_logprobs", "top_logprobs goes only with logprobs set to true");
  }
  if (wanted) request.sampling.logprobs = static_cast<int>(top.value_or(0));
}

// What an echoing chat puts in front: the text of a last message of the answering role.
std::string LastAssistantText(const json::object& body) {
  const json::array& messages = body.at("messages").get_array();
  const json::object& last = messages[messages.size() - 1].get_object();
  const json::value* content = last.if_contains("content");
  if (last.at("role") != "assistant" || content == nullptr || !content->is_string()) return "";
  return std::string(content->get_string());
}

}  // namespace

std::optional<ApiError> ReadDialogue(RequestFields& fields, const ServedModel& model,
                                     ApiPrompt& prompt) {
  std::optional<ChatTemplate> own;
  ReadTemplate(fields, model, own);
  ChatInput input;
  ReadVariables(fields, input);
  ReadEnd(fields, input);
  // Templates write their special tokens themselves.
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(false);
  const json::array* messages = fields.Array("messages");
  if (fields.failed()) return fields.error();
  if (messages == nullptr)
    return BadRequest("messages is missing; give a list of messages", "messages");
  if (auto wrong = ReadMessages(*messages, input.messages)) return wrong;
  const ChatTemplate* chat = own ? &*own : model.chat_template;
  if (chat == nullptr || model.tokenizer == nullptr) {
    return BadRequest("the model has no chat template; use /v1/completions with a whole prompt",
                      "messages");
  }
  std::string text;
  if (auto wrong = Render(*chat, input, text)) return wrong;
  if (auto wrong = CheckPromptBytes(text.size(), model, "messages")) return wrong;
  prompt.ids = model.tokenizer->Encode(text, add_special_tokens);
  return {};
}

std::optional<ApiError> ReadChatRequest(const json::object& body, const ServedModel& model,
                                        ApiRequest& request) {
  RequestFields fields(body);
  request.kind = ApiRequest::Kind::kChat;
  ReadCommonFields(fields, model, request);
  ReadLogprobs(fields, request);
  Assign(request.echo, fields.Bool("echo"));
  PromptFit fit = ReadTruncation(fields, model);
  constexpr int kOne = 1;
  fit.max_tokens = ReadMaxTokens(fields, kOne);
  if (fields.failed()) return fields.error();  // before the prompt is worked on
  ApiPrompt& prompt = request.prompts.emplace_back();
  if (std::optional<ApiError> wrong = ReadDialogue(fields, model, prompt)) return wrong;
  if (std::optional<ApiError> wrong = FitPrompt(fit, model, prompt)) {
    if (wrong->param == "prompt") wrong->param = "messages";
    return wrong;
  }
  if (request.echo) {
    prompt.text = LastAssistantText(body);
    MakeEcho(prompt);
  }
  request.ignored = fields.Unknown();
  return {};
}

}  // namespace spry
