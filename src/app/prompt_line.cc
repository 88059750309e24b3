#include "app/prompt_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <charconv>
#include <cstdint>

namespace spry {
namespace {

namespace json = boost::json;

constexpr size_t kMaxQuotedBytes = 40;
constexpr char kForm[] = R"(a line is like {"prompt": "Hello", "max_tokens": 8})";

// The value as JSON, cut to what fits a message.
std::string Quote(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() <= kMaxQuotedBytes) return text;
  size_t end = kMaxQuotedBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

Status Wrong(std::string_view field, const json::value& value, const char* expected) {
  return InvalidArgument(fmt::format("{} is {}; it must be {}", field, Quote(value), expected));
}

Status Read(std::string_view field, const json::value& value, std::optional<double>& target) {
  if (!value.is_number()) return Wrong(field, value, "a number");
  target = value.to_number<double>();
  return {};
}

Status Read(std::string_view field, const json::value& value, std::optional<int>& target) {
  const int64_t* number = value.if_int64();
  if (number == nullptr || *number != static_cast<int>(*number)) {
    return Wrong(field, value, "an integer of 32 bits");
  }
  target = static_cast<int>(*number);
  return {};
}

// Seeds of both signs are in use; a negative one stands for its two's complement.
Status Read(std::string_view field, const json::value& value, std::optional<uint64_t>& target) {
  if (const int64_t* number = value.if_int64()) {
    target = static_cast<uint64_t>(*number);
  } else if (const uint64_t* large = value.if_uint64()) {
    target = *large;
  } else {
    return Wrong(field, value, "an integer of 64 bits");
  }
  return {};
}

Status Read(std::string_view field, const json::value& value, std::optional<bool>& target) {
  if (!value.is_bool()) return Wrong(field, value, "true or false");
  target = value.get_bool();
  return {};
}

Status Read(std::string_view field, const json::value& value, std::vector<TokenId>& target) {
  if (!value.is_array()) return Wrong(field, value, "a list of token ids");
  const json::array& array = value.get_array();
  target.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const int64_t* id = array[i].if_int64();
    if (id == nullptr || *id < 0 || *id > INT32_MAX) {
      return Wrong(fmt::format("{}[{}]", field, i), array[i], "a token id");
    }
    target.emplace_back(static_cast<int32_t>(*id));
  }
  return {};
}

Status Read(std::string_view field, const json::value& value,
            std::optional<std::vector<TokenId>>& target) {
  return Read(field, value, target.emplace());
}

Status Read(std::string_view field, const json::value& value, std::optional<std::string>& target) {
  if (!value.is_string()) return Wrong(field, value, "a string");
  const json::string& text = value.get_string();
  target.emplace(text.data(), text.size());
  return {};
}

// One string stands for a list of one.
Status Read(std::string_view field, const json::value& value,
            std::optional<std::vector<std::string>>& target) {
  target.emplace();
  const json::array one = {value};
  const json::array& array = value.is_array() ? value.get_array() : one;
  for (size_t i = 0; i < array.size(); ++i) {
    std::optional<std::string> text;
    const std::string name =
        value.is_array() ? fmt::format("{}[{}]", field, i) : std::string(field);
    SPRY_RETURN_IF_ERROR(Read(name, array[i], text));
    target->push_back(*std::move(text));
  }
  return {};
}

// {"11": -5}: ids are keys, as in the HTTP API.
Status Read(std::string_view field, const json::value& value,
            std::optional<std::vector<LogitBias>>& target) {
  if (!value.is_object()) return Wrong(field, value, "an object of token ids and numbers");
  target.emplace();
  for (const json::key_value_pair& pair : value.get_object()) {
    const std::string_view key(pair.key().data(), pair.key().size());
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || id < 0 || end != key.data() + key.size()) {
      return Wrong(fmt::format("a key of {}", field), json::string(pair.key()), "a token id");
    }
    if (!pair.value().is_number()) {
      return Wrong(fmt::format("{}[{}]", field, key), pair.value(), "a number");
    }
    target->push_back({TokenId(id), pair.value().to_number<float>()});
  }
  return {};
}

template <auto member>
Status ReadSampling(std::string_view field, const json::value& value, PromptLine& line) {
  return Read(field, value, line.sampling.*member);
}
template <auto member>
Status ReadPrompt(std::string_view field, const json::value& value, PromptLine& line) {
  return Read(field, value, line.*member);
}

struct Field {
  std::string_view name;
  Status (*read)(std::string_view field, const json::value& value, PromptLine& line);
};

constexpr Field kFields[] = {
    {"prompt", ReadPrompt<&PromptLine::text>},
    {"prompt_token_ids", ReadPrompt<&PromptLine::token_ids>},
    {"priority", ReadPrompt<&PromptLine::priority>},
    {"n", ReadSampling<&SamplingFields::n>},
    {"temperature", ReadSampling<&SamplingFields::temperature>},
    {"top_p", ReadSampling<&SamplingFields::top_p>},
    {"top_k", ReadSampling<&SamplingFields::top_k>},
    {"min_p", ReadSampling<&SamplingFields::min_p>},
    {"repetition_penalty", ReadSampling<&SamplingFields::repetition_penalty>},
    {"presence_penalty", ReadSampling<&SamplingFields::presence_penalty>},
    {"frequency_penalty", ReadSampling<&SamplingFields::frequency_penalty>},
    {"logit_bias", ReadSampling<&SamplingFields::logit_bias>},
    {"allowed_token_ids", ReadSampling<&SamplingFields::allowed_token_ids>},
    {"bad_words", ReadSampling<&SamplingFields::bad_words>},
    {"seed", ReadSampling<&SamplingFields::seed>},
    {"max_tokens", ReadSampling<&SamplingFields::max_tokens>},
    {"min_tokens", ReadSampling<&SamplingFields::min_tokens>},
    {"stop_token_ids", ReadSampling<&SamplingFields::stop_token_ids>},
    {"ignore_eos", ReadSampling<&SamplingFields::ignore_eos>},
    {"stop", ReadSampling<&SamplingFields::stop>},
    {"include_stop_str_in_output", ReadSampling<&SamplingFields::include_stop_str_in_output>},
    {"logprobs", ReadSampling<&SamplingFields::logprobs>},
    {"prompt_logprobs", ReadSampling<&SamplingFields::prompt_logprobs>},
};

Status ReadField(std::string_view name, const json::value& value, PromptLine& line) {
  for (const Field& field : kFields) {
    if (field.name == name) return field.read(name, value, line);
  }
  std::vector<std::string_view> names;
  for (const Field& field : kFields) names.push_back(field.name);
  return InvalidArgument(fmt::format("unknown field {}; known are {}",
                                     Quote(json::string(name.data(), name.size())),
                                     fmt::join(names, ", ")));
}

}  // namespace

Result<PromptLine> ParsePromptLine(std::string_view text) {
  json::error_code error;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) return InvalidArgument(fmt::format("not valid JSON: {}; {}", error.message(), kForm));
  if (!value.is_object()) return InvalidArgument(fmt::format("not a JSON object; {}", kForm));

  PromptLine line;
  bool has_ids = false;
  for (const json::key_value_pair& pair : value.get_object()) {
    if (pair.value().is_null()) continue;
    const std::string_view name(pair.key().data(), pair.key().size());
    SPRY_RETURN_IF_ERROR(ReadField(name, pair.value(), line));
    has_ids = has_ids || name == "prompt_token_ids";
  }
  if (line.text.has_value() == has_ids) {
    return InvalidArgument(has_ids ? "prompt and prompt_token_ids are both there; give one"
                                   : "prompt is missing; give prompt or prompt_token_ids");
  }
  return line;
}

}  // namespace spry
