#include "server/choice_logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace spry {
namespace {

// -infinity has no JSON; vLLM writes this.
float Shown(float logprob) { return std::max(logprob, -9999.0f); }

std::string_view Bytes(const Tokenizer* tokenizer, TokenId id) {
  return tokenizer == nullptr ? std::string_view() : tokenizer->TokenBytes(id);
}

void WriteToken(const LogprobsShape& shape, TokenId id, JsonWriter& json) {
  if (!shape.tokens_as_ids && shape.tokenizer != nullptr) {
    return json.String(Bytes(shape.tokenizer, id));
  }
  fmt::basic_memory_buffer<char, 32> text;
  fmt::format_to(std::back_inserter(text), "token_id:{}", id.value());
  json.String({text.data(), text.size()});
}

bool IsAmongTop(const TokenLogprobs& token) {
  const auto end = token.top + token.num_top;
  return std::find_if(token.top, end, [&](const TokenLogprob& top) {
           return top.token == token.chosen.token;
         }) != end;
}

// {"token", "logprob", "bytes", left open.
void OpenChatEntry(const LogprobsShape& shape, const TokenLogprob& entry, JsonWriter& json) {
  json.BeginObject();
  json.Key("token");
  WriteToken(shape, entry.token, json);
  json.Key("logprob");
  json.Number(Shown(entry.logprob));
  json.Key("bytes");
  json.BeginArray();
  for (const char byte : Bytes(shape.tokenizer, entry.token)) {
    json.Integer(static_cast<unsigned char>(byte));
  }
  json.EndArray();
}

}  // namespace

// Texts are keys here, and different tokens may have the same one (broken bytes, say): the most
// likely of them stands for all.
void ChoiceLogprobs::AddTop(const TokenLogprobs& token) {
  struct Key {
    size_t at, size;
  };
  std::array<Key, kMaxLogprobs + 1> keys;
  size_t num_keys = 0;
  JsonWriter top(top_);
  top.BeginObject();
  const auto add = [&](const TokenLogprob& entry) {
    const size_t before = top_.size();
    WriteToken(shape_, entry.token, top);
    const size_t at = top_.find('"', before);
    const std::string_view key = std::string_view(top_).substr(at);
    const auto is_same = [&](const Key& other) {
      return std::string_view(top_).substr(other.at, other.size) == key;
    };
    if (std::any_of(keys.begin(), keys.begin() + num_keys, is_same)) return top_.resize(before);
    keys[num_keys++] = {.at = at, .size = key.size()};
    top_ += ':';
    top.Number(Shown(entry.logprob));
  };
  for (int i = 0; i < token.num_top; ++i) add(token.top[i]);
  // As OpenAI: the chosen token is always there, so there may be one more than asked for.
  if (!IsAmongTop(token)) add(token.chosen);
  top.EndObject();
}

void ChoiceLogprobs::AddChatEntry(const TokenLogprobs& token) {
  JsonWriter json(tokens_);
  OpenChatEntry(shape_, token.chosen, json);
  json.Key("top_logprobs");
  json.BeginArray();
  for (int i = 0; i < token.num_top; ++i) {
    OpenChatEntry(shape_, token.top[i], json);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

void ChoiceLogprobs::Add(const TokenLogprobs& token, int64_t offset) {
  if (shape_.kind == ApiRequest::Kind::kChat) return AddChatEntry(token);
  JsonWriter tokens(tokens_), logprobs(logprobs_), offsets(offsets_);
  WriteToken(shape_, token.chosen.token, tokens);
  logprobs.Number(Shown(token.chosen.logprob));
  AddTop(token);
  offsets.Integer(offset);
}

void ChoiceLogprobs::AddUnforetold(TokenId token, int64_t offset) {
  JsonWriter tokens(tokens_), logprobs(logprobs_), top(top_), offsets(offsets_);
  WriteToken(shape_, token, tokens);
  logprobs.Null();
  top.Null();
  offsets.Integer(offset);
}

void ChoiceLogprobs::Write(JsonWriter& json) const {
  const auto list = [&](std::string_view key, const std::string& inside) {
    json.Key(key);
    json.BeginArray();
    if (!inside.empty()) json.Raw(inside);
    json.EndArray();
  };
  json.BeginObject();
  if (shape_.kind == ApiRequest::Kind::kChat) {
    list("content", tokens_);
    json.Key("refusal");
    json.Null();
  } else {
    list("text_offset", offsets_);
    list("token_logprobs", logprobs_);
    list("tokens", tokens_);
    list("top_logprobs", top_);
  }
  json.EndObject();
}

void ChoiceLogprobs::Clear() {
  tokens_.clear();
  logprobs_.clear();
  top_.clear();
  offsets_.clear();
}

void WritePromptLogprobs(const TokenLogprobs& token, const Tokenizer* tokenizer, JsonWriter& json) {
  const auto add = [&](const TokenLogprob& entry, int rank) {
    fmt::basic_memory_buffer<char, 16> key;
    fmt::format_to(std::back_inserter(key), "{}", entry.token.value());
    json.Key({key.data(), key.size()});
    json.BeginObject();
    json.Key("logprob");
    json.Number(Shown(entry.logprob));
    json.Key("rank");
    json.Integer(rank);
    json.Key("decoded_token");
    json.String(Bytes(tokenizer, entry.token));
    json.EndObject();
  };
  json.BeginObject();
  if (!IsAmongTop(token)) add(token.chosen, token.rank);
  for (int i = 0; i < token.num_top; ++i) add(token.top[i], i + 1);
  json.EndObject();
}

}  // namespace spry
