#include "server/text_endpoints.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/json_writer.h"
#include "server/sampling_request.h"

namespace spry {
namespace {

// A token may spell many bytes, and the whole text is in memory until its client has read it.
constexpr size_t kMostDetokenized = 1 << 17;

constexpr const char* kNoTokenizer = "the model has no tokenizer";

// The ids of `prompt`, or of the dialogue `messages`.
std::optional<ApiError> ReadText(RequestFields& fields, const ServedModel& model,
                                 ApiPrompt& prompt) {
  if (fields.Find("messages") != nullptr) return ReadDialogue(fields, model, prompt);
  const std::optional<std::string> text = fields.String("prompt");
  const bool add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  if (fields.failed()) return fields.error();
  if (!text) return BadRequest("prompt is missing; give a string, or messages", "prompt");
  return EncodePrompt(*text, add_special_tokens, model, prompt);
}

std::string TokenizeAnswer(const ServedModel& model, const ApiPrompt& prompt, bool with_texts) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Key("count");
  json.Integer(static_cast<int64_t>(prompt.ids.size()));
  json.Key("max_model_len");
  json.Integer(model.max_model_len);
  json.Key("tokens");
  json.BeginArray();
  for (const TokenId id : prompt.ids) json.Integer(id.value());
  json.EndArray();
  json.Key("token_strs");
  if (with_texts) {
    json.BeginArray();
    for (const TokenId id : prompt.ids) json.String(model.tokenizer->TokenBytes(id));
    json.EndArray();
  } else {
    json.Null();
  }
  json.EndObject();
  return body;
}

}  // namespace

HttpResponse AnswerTokenize(const HttpRequest& request, const ServedModel& model) {
  JsonBody body = ParseJsonBody(request);
  if (body.error) return ErrorAnswer(*body.error);
  RequestFields fields(body.object);
  ReadModel(fields, model);
  const bool with_texts = fields.Bool("return_token_strs").value_or(false);
  ApiPrompt prompt;
  std::optional<ApiError> error = fields.error();
  if (!error) error = ReadText(fields, model, prompt);
  if (error) return ErrorAnswer(*error);
  return {.body = TokenizeAnswer(model, prompt, with_texts)};
}

HttpResponse AnswerDetokenize(const HttpRequest& request, const ServedModel& model) {
  JsonBody body = ParseJsonBody(request);
  if (body.error) return ErrorAnswer(*body.error);
  RequestFields fields(body.object);
  ReadModel(fields, model);
  const auto ids = fields.TokenIds("tokens", model.vocab_size);
  if (!ids) fields.Fail("tokens", "tokens is missing; give a list of token ids");
  if (ids && ids->size() > kMostDetokenized) {
    fields.Fail("tokens", fmt::format("tokens has {} ids; one request may have at most {}",
                                      ids->size(), kMostDetokenized));
  }
  if (model.tokenizer == nullptr) fields.Fail("tokens", kNoTokenizer);
  if (fields.failed()) return ErrorAnswer(*fields.error());
  constexpr bool kSkipSpecialTokens = false;
  HttpResponse response;
  JsonWriter json(response.body);
  json.BeginObject();
  json.Key("prompt");
  json.String(model.tokenizer->Decode(*ids, kSkipSpecialTokens));
  json.EndObject();
  return response;
}

}  // namespace spry
