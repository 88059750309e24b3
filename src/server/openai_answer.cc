#include "server/openai_answer.h"

namespace spry {
namespace {

void WriteIds(std::string_view key, std::span<const TokenId> ids, JsonWriter& json) {
  json.Key(key);
  json.BeginArray();
  for (const TokenId id : ids) json.Integer(id.value());
  json.EndArray();
}

}  // namespace

const char* FinishWord(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: break;
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kError: return "error";
  }
  return nullptr;
}

void WriteUsage(const Usage& usage, JsonWriter& json) {
  json.BeginObject();
  json.Key("prompt_tokens");
  json.Integer(usage.prompt_tokens);
  json.Key("total_tokens");
  json.Integer(usage.prompt_tokens + usage.completion_tokens);
  json.Key("completion_tokens");
  json.Integer(usage.completion_tokens);
  json.Key("prompt_tokens_details");
  json.BeginObject();
  json.Key("cached_tokens");
  json.Integer(usage.cached_tokens);
  json.EndObject();
  json.EndObject();
}

OpenAiAnswer::OpenAiAnswer(const ApiRequest& request, std::string_view id,
                           std::string_view fingerprint, int64_t created)
    : request_(request) {
  const auto head = [&](std::string_view object, std::string& out) {
    JsonWriter json(out);
    json.BeginObject();
    json.Key("id");
    json.String(id);
    json.Key("object");
    json.String(object);
    json.Key("created");
    json.Integer(created);
    json.Key("model");
    json.String(request.model);
    json.Key("system_fingerprint");
    json.String(fingerprint);
    json.Key("choices");
    json.BeginArray();
  };
  chunk_head_ = "data: ";
  head(chat() ? "chat.completion.chunk" : "text_completion", chunk_head_);
  head(chat() ? "chat.completion" : "text_completion", whole_head_);
}

// A chat says what is new in "delta", completions in "text".
void OpenAiAnswer::WriteDelta(const ChoicePiece& piece, JsonWriter& json) const {
  if (!chat()) {
    json.Key("text");
    json.String(piece.echo, piece.text);
    return;
  }
  json.Key("delta");
  json.BeginObject();
  if (piece.role) {
    json.Key("role");
    json.String("assistant");
  }
  if (piece.role || !piece.echo.empty() || !piece.text.empty() ||
      piece.finish == FinishReason::kNone) {
    json.Key("content");
    json.String(piece.echo, piece.text);
  }
  json.EndObject();
}

void OpenAiAnswer::WriteFinish(const ChoicePiece& piece, JsonWriter& json) const {
  json.Key("logprobs");
  if (piece.logprobs == nullptr) {
    json.Null();
  } else {
    piece.logprobs->Write(json);
  }
  const char* word = FinishWord(piece.finish);
  json.Key("finish_reason");
  word == nullptr ? json.Null() : json.String(word);
  json.Key("stop_reason");
  if (piece.stop_string != nullptr) {
    json.String(*piece.stop_string);
  } else if (piece.stop_token) {
    json.Integer(piece.stop_token->value());
  } else {
    json.Null();
  }
  if (request_.return_token_ids) WriteIds("token_ids", piece.token_ids, json);
}

void OpenAiAnswer::WritePromptExtras(const ChoicePiece& piece, JsonWriter& json) const {
  if (request_.return_token_ids && !piece.prompt_ids.empty()) {
    WriteIds("prompt_token_ids", piece.prompt_ids, json);
  }
  if (request_.prompt_logprobs && !request_.stream) {
    json.Key("prompt_logprobs");
    json.BeginArray();
    if (!piece.prompt_logprobs.empty()) json.Raw(piece.prompt_logprobs);
    json.EndArray();
  }
}

void OpenAiAnswer::WriteChunk(const ChoicePiece& piece, const Usage& usage,
                              std::string& out) const {
  out += chunk_head_;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("index");
  json.Integer(piece.index);
  WriteDelta(piece, json);
  WriteFinish(piece, json);
  if (!chat()) WritePromptExtras(piece, json);
  json.EndObject();
  json.EndArray();
  if (chat()) WritePromptExtras(piece, json);
  if (request_.continuous_usage) {
    json.Key("usage");
    WriteUsage(usage, json);
  } else if (request_.include_usage) {
    json.Key("usage");
    json.Null();
  }
  json.EndObject();
  out += "\n\n";
}

void OpenAiAnswer::WriteUsageChunk(const Usage& usage, std::string& out) const {
  if (!request_.include_usage) return;
  out += chunk_head_;
  JsonWriter json(out);
  json.EndArray();
  json.Key("usage");
  WriteUsage(usage, json);
  json.EndObject();
  out += "\n\n";
}

void OpenAiAnswer::BeginWhole(std::string& out) const { out += whole_head_; }

void OpenAiAnswer::WriteChoice(const ChoicePiece& piece, std::string& out) const {
  JsonWriter json(out);
  json.BeginObject();
  json.Key("index");
  json.Integer(piece.index);
  if (chat()) {
    json.Key("message");
    json.BeginObject();
    json.Key("role");
    json.String("assistant");
    json.Key("content");
    json.String(piece.echo, piece.text);
    json.Key("refusal");
    json.Null();
    json.EndObject();
  } else {
    json.Key("text");
    json.String(piece.echo, piece.text);
  }
  WriteFinish(piece, json);
  if (!chat()) WritePromptExtras(piece, json);
  json.EndObject();
}

// `first`: the choice whose prompt a chat's answer shows.
void OpenAiAnswer::EndWhole(const ChoicePiece& first, const Usage& usage, std::string& out) const {
  JsonWriter json(out);
  json.EndArray();
  json.Key("usage");
  WriteUsage(usage, json);
  if (chat()) WritePromptExtras(first, json);
  json.EndObject();
}

}  // namespace spry
