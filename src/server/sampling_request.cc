#include "server/sampling_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <limits>
#include <utility>

#include "text/bad_words.h"

namespace spry {
namespace {

namespace json = boost::json;

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxNameBytes = 128;      // of a request's id
constexpr size_t kMaxSaltBytes = 1024;  // of cache_salt: each answer has a copy

// The type tells most of a response_format: {"type":"json_schema",...}.
std::string NotServed(std::string_view name, const json::value& value) {
  const json::object* object = value.if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  if (type == nullptr || !type->is_string()) {
    return fmt::format("this server does not serve {} yet; leave it out (found {})", name,
                       Described(value));
  }
  return fmt::format("this server does not serve {} of type {} yet; leave it out", name,
                     Quoted(type->get_string()));
}

void ReadStream(RequestFields& fields, ApiRequest& request) {
  Assign(request.stream, fields.Bool("stream"));
  const json::object* object = fields.Object("stream_options");
  if (object == nullptr) return;
  if (!request.stream) {
    return fields.Fail("stream_options", "stream_options goes only with stream set to true");
  }
  RequestFields options(*object, "stream_options.");
  Assign(request.include_usage, options.Bool("include_usage"));
  Assign(request.continuous_usage, options.Bool("continuous_usage_stats"));
  if (options.failed()) fields.Fail(*options.error());
}

void ReadLogitBias(RequestFields& fields, const ServedModel& model, SamplingParams& sampling) {
  const json::object* object = fields.Object("logit_bias");
  if (object == nullptr) return;
  for (const auto& entry : *object) {
    const std::string_view key(entry.key().data(), entry.key().size());
    int32_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = end.ec == std::errc() && end.ptr == key.data() + key.size();
    if (!whole || id < 0 || id >= model.vocab_size) {
      return fields.Fail("logit_bias",
                         fmt::format("logit_bias has the key \"{:.64}\"; ids of this model go from "
                                     "0 to {}",
                                     key, model.vocab_size - 1));
    }
    const bool number = entry.value().is_number();
    const double bias = number ? entry.value().to_number<double>() : 0;
    if (!number || !(bias >= -kMaxLogitBias && bias <= kMaxLogitBias)) {
      return fields.Fail("logit_bias", fmt::format("logit_bias of {} is {}; it must be a number in "
                                                   "[-100, 100]",
                                                   id, Described(entry.value())));
    }
    sampling.logit_bias.push_back({.token = TokenId(id), .bias = static_cast<float>(bias)});
  }
}

void ReadBadWords(RequestFields& fields, const ServedModel& model, SamplingParams& sampling) {
  const std::optional<std::vector<std::string>> words = fields.Strings("bad_words");
  if (!words || words->empty()) return;
  if (model.tokenizer == nullptr) {
    return fields.Fail("bad_words", "bad_words needs a tokenizer, which the model does not have");
  }
  Result<std::vector<std::vector<TokenId>>> ids = EncodeBadWords(*model.tokenizer, *words);
  if (!ids.ok()) return fields.Fail("bad_words", ids.status().message());
  sampling.bad_words = *std::move(ids);
}

void ReadStops(RequestFields& fields, const ServedModel& model, SamplingParams& sampling) {
  Assign(sampling.stop, fields.Strings("stop"));
  if (sampling.stop.size() > kMaxStopStrings) {
    return fields.Fail("stop", fmt::format("stop has {} strings; it may have at most {}",
                                           sampling.stop.size(), kMaxStopStrings));
  }
  for (const std::string& stop : sampling.stop) {
    if (stop.empty() || stop.size() > kMaxStopStringBytes) {
      return fields.Fail("stop", fmt::format("stop has a string of {} bytes; it must be from 1 to "
                                             "{} bytes",
                                             stop.size(), kMaxStopStringBytes));
    }
  }
  if (!sampling.stop.empty() && model.tokenizer == nullptr) {
    return fields.Fail("stop",
                       "stop needs the text of tokens, and the model has no tokenizer; use "
                       "stop_token_ids");
  }
  Assign(sampling.include_stop_str_in_output, fields.Bool("include_stop_str_in_output"));
  Assign(sampling.stop_token_ids, fields.TokenIds("stop_token_ids", model.vocab_size));
  if (sampling.stop_token_ids.size() > kMaxStopTokenIds) {
    return fields.Fail("stop_token_ids",
                       fmt::format("stop_token_ids has {} ids; it may have at most {}",
                                   sampling.stop_token_ids.size(), kMaxStopTokenIds));
  }
  Assign(sampling.ignore_eos, fields.Bool("ignore_eos"));
  Assign(sampling.min_tokens, fields.Integer("min_tokens", {0, kMaxInt}));
}

void ReadRules(RequestFields& fields, const ServedModel& model, SamplingParams& sampling) {
  const NumberRange penalty{.low = -2, .high = 2};
  Assign(sampling.presence_penalty, fields.Number("presence_penalty", penalty));
  Assign(sampling.frequency_penalty, fields.Number("frequency_penalty", penalty));
  Assign(sampling.repetition_penalty,
         fields.Number("repetition_penalty", {.low = 0, .low_open = true}));
  ReadLogitBias(fields, model, sampling);
  ReadBadWords(fields, model, sampling);
  if (auto allowed = fields.TokenIds("allowed_token_ids", model.vocab_size)) {
    if (allowed->empty()) {
      return fields.Fail("allowed_token_ids",
                         "allowed_token_ids is empty; give at least one id, or leave it out");
    }
    // Each answer has a copy: as many as the vocabulary has are enough.
    std::ranges::sort(*allowed);
    allowed->erase(std::unique(allowed->begin(), allowed->end()), allowed->end());
    allowed->shrink_to_fit();
    sampling.allowed_token_ids = *std::move(allowed);
  }
}

void ReadSampling(RequestFields& fields, const ServedModel& model, ApiRequest& request) {
  SamplingParams& sampling = request.sampling;
  Assign(request.n, fields.Integer("n", {1, kMaxChoices}));
  Assign(sampling.temperature, fields.Number("temperature", {.low = 0}));
  Assign(sampling.top_p, fields.Number("top_p", {.low = 0, .high = 1, .low_open = true}));
  Assign(sampling.min_p, fields.Number("min_p", {.low = 0, .high = 1}));
  Assign(sampling.top_k, fields.Integer("top_k", {-1, kMaxInt}));
  // As in vLLM, -1 asks for none; 2^64 - 1 has the same bits.
  constexpr auto kNoSeed = static_cast<uint64_t>(-1);
  if (const auto seed = fields.Bits("seed"); seed != kNoSeed) Assign(sampling.seed, seed);
  if (request.n > 1 && sampling.temperature < kGreedyTemperature) {
    fields.Fail("n", fmt::format("n is {}; it must be 1 with a temperature of 0, where all choices "
                                 "would be the same",
                                 request.n));
  }
  ReadRules(fields, model, sampling);
  ReadStops(fields, model, sampling);
  if (const auto shown = fields.Integer("prompt_logprobs", {0, kMaxLogprobs})) {
    request.prompt_logprobs = static_cast<int>(*shown);
    sampling.prompt_logprobs = request.prompt_logprobs;
    if (request.stream) {
      fields.Fail("prompt_logprobs", "prompt_logprobs can't be streamed; leave out stream");
    }
  }
}

// Printable ASCII, since it stands in logs and in ids of answers.
bool IsName(std::string_view text) {
  return text.size() <= kMaxNameBytes &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

void ReadModel(RequestFields& fields, const ServedModel& model) {
  const std::optional<std::string> asked = fields.String("model");
  if (!asked || model.IsServed(*asked)) return;
  fields.Fail(UnknownModel(*asked, model));
}

ApiError UnknownModel(std::string_view asked, const ServedModel& model) {
  return {.status = 404,
          .message = fmt::format("The model `{:.256}` does not exist. This server has `{}`.", asked,
                                 fmt::join(model.names, "`, `")),
          .param = "model",
          .code = "model_not_found"};
}

void ReadCommonFields(RequestFields& fields, const ServedModel& model, ApiRequest& request) {
  ReadModel(fields, model);
  request.model = model.names.front();
  request.sampling = model.defaults;
  ReadStream(fields, request);
  ReadSampling(fields, model, request);
  Assign(request.skip_special_tokens, fields.Bool("skip_special_tokens"));
  Assign(request.return_token_ids, fields.Bool("return_token_ids"));
  Assign(request.return_tokens_as_token_ids, fields.Bool("return_tokens_as_token_ids"));
  Assign(request.cache_salt, fields.String("cache_salt"));
  if (request.cache_salt.size() > kMaxSaltBytes) {
    fields.Fail("cache_salt", fmt::format("cache_salt has {} bytes; it may have at most {}",
                                          request.cache_salt.size(), kMaxSaltBytes));
  }
  Assign(request.priority, fields.Integer("priority", {std::numeric_limits<int>::min(), kMaxInt}));
  Assign(request.id, fields.String("request_id"));
  if (!IsName(request.id)) {
    fields.Fail("request_id",
                fmt::format("request_id must be printable ASCII without spaces, at most {} bytes",
                            kMaxNameBytes));
  }
  // What changes nothing here: bookkeeping of the client, and switches of what is not served.
  for (const char* name :
       {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "parallel_tool_calls", "length_penalty",
        "spaces_between_special_tokens", "include_reasoning"}) {
    fields.Know(name);
  }
  RefuseUnserved(fields);
}

std::optional<int> ReadMaxTokens(RequestFields& fields, int least) {
  const auto older = fields.Integer("max_tokens", {least, kMaxInt});
  const auto newer = fields.Integer("max_completion_tokens", {least, kMaxInt});
  const auto asked = newer ? newer : older;
  return asked ? std::optional(static_cast<int>(*asked)) : std::nullopt;
}

PromptFit ReadTruncation(RequestFields& fields, const ServedModel& model) {
  PromptFit fit;
  if (const auto kept = fields.Integer("truncate_prompt_tokens", {-1, model.max_model_len})) {
    fit.truncate = static_cast<int>(*kept);
    if (*kept == 0) {
      fields.Fail("truncate_prompt_tokens",
                  fmt::format("truncate_prompt_tokens is 0; it must be -1, or from 1 to {}",
                              model.max_model_len));
    }
  }
  if (const std::optional<std::string> side = fields.String("truncation_side")) {
    fit.keep_front = *side == "right";
    if (*side != "left" && *side != "right") {
      fields.Fail("truncation_side", "truncation_side must be \"left\" or \"right\"");
    }
  }
  return fit;
}

std::optional<ApiError> FitPrompt(const PromptFit& fit, const ServedModel& model,
                                  ApiPrompt& prompt) {
  const int64_t least_answer = fit.max_tokens.value_or(1);
  if (fit.truncate) {
    // To what the model takes: a prompt with its answer.
    const int64_t most = *fit.truncate < 0
                             ? std::max<int64_t>(model.max_model_len - least_answer, 1)
                             : int64_t{*fit.truncate};
    const int64_t surplus = static_cast<int64_t>(prompt.ids.size()) - most;
    if (surplus > 0) {
      const auto from = fit.keep_front ? prompt.ids.begin() + most : prompt.ids.begin();
      prompt.ids.erase(from, from + surplus);
      prompt.text.clear();
    }
  }
  const auto size = static_cast<int64_t>(prompt.ids.size());
  if (size == 0) return BadRequest("the prompt is empty; give at least one token", "prompt");
  const int64_t room = model.max_model_len - size;
  if (room < least_answer) {
    return ApiError{
        .status = 400,
        .message = fmt::format("This model's maximum context length is {} tokens. The prompt has "
                               "{} and the answer may have {}: shorten one of them.",
                               model.max_model_len, size, least_answer),
        .param = fit.max_tokens.value_or(0) > 1 ? "max_tokens" : "prompt",
        .code = "context_length_exceeded"};
  }
  const int64_t otherwise = fit.otherwise == 0 ? room : std::min<int64_t>(fit.otherwise, room);
  prompt.max_tokens = static_cast<int>(fit.max_tokens ? *fit.max_tokens : otherwise);
  return {};
}

void RefuseUnserved(RequestFields& fields) {
  struct Unserved {
    const char* name;
    const char* harmless;  // JSON that asks for nothing
  };
  static constexpr Unserved kUnserved[] = {
      {"tools", "[]"},
      {"tool_choice", "\"none\""},
      {"functions", "[]"},
      {"function_call", "\"none\""},
      {"response_format", "{\"type\":\"text\"}"},
      {"structured_outputs", "{}"},
      {"guided_json", "null"},
      {"guided_regex", "null"},
      {"guided_choice", "null"},
      {"guided_grammar", "null"},
      {"modalities", "[\"text\"]"},
      {"audio", "null"},
      {"prediction", "null"},
      {"web_search_options", "null"},
      {"suffix", "\"\""},
      {"use_beam_search", "false"},
      {"prompt_embeds", "null"},
      {"logits_processors", "[]"},
      {"kv_transfer_params", "null"},
      {"mm_processor_kwargs", "{}"},
      {"repetition_detection", "null"},
      {"thinking_token_budget", "null"},
      {"vllm_xargs", "{}"},
  };
  for (const Unserved& unserved : kUnserved) {
    const json::value* value = fields.Find(unserved.name);
    if (value == nullptr || *value == json::parse(unserved.harmless)) continue;
    return fields.Fail(unserved.name, NotServed(unserved.name, *value));
  }
}

}  // namespace spry
