#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/why_not_json.h"

namespace spry {
namespace {

namespace json = boost::json;

constexpr int kMaxShownBytes = 64;

bool IsJson(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (type.ends_with(' ')) type.pop_back();
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
  return type == "application/json";
}

JsonBody Refused(std::string message) { return {.error = BadRequest(std::move(message))}; }

std::string Shown(double value) {
  if (std::isinf(value)) return value > 0 ? "a number over 1.8e+308" : "a number under -1.8e+308";
  return fmt::format("{}", value);
}

// An upper end that is only the type's is left out, unless it is what was passed.
std::string RangeText(IntegerRange range, bool is_above) {
  constexpr int64_t kTypesHigh = std::numeric_limits<int>::max();
  constexpr int64_t kTypesLow = std::numeric_limits<int>::min();
  if (range.high == kTypesHigh && range.low != kTypesLow && !is_above) {
    return fmt::format("{} or more", range.low);
  }
  return fmt::format("from {} to {}", range.low, range.high);
}

std::string RangeText(NumberRange range, bool is_above) {
  if (range.high == NumberRange().high && !is_above) {
    return range.low_open ? fmt::format("more than {}", range.low)
                          : fmt::format("{} or more", range.low);
  }
  return fmt::format("in {}{:.3g}, {:.3g}]", range.low_open ? '(' : '[', range.low, range.high);
}

}  // namespace

std::optional<ApiError> CheckJsonType(std::string_view content_type) {
  if (IsJson(content_type)) return {};
  return ApiError{
      .status = 415,
      .message = fmt::format("the content type is '{}'; expected application/json", content_type)};
}

JsonBody ParseJsonBody(const HttpRequest& request) {
  json::error_code error;
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::parser parser({}, options);
  const size_t read = parser.write(request.body, error);
  if (error == json::error::too_deep) {
    return Refused(fmt::format("the body nests deeper than the limit of {}", kMaxJsonDepth));
  }
  if (error) {
    return Refused("the body is not JSON: " + WhyNotJson(request.body, read, error));
  }
  json::value value = parser.release();
  if (!value.is_object()) {
    return Refused(fmt::format("the body is {}; expected an object", Described(value)));
  }
  return {.object = std::move(value.get_object())};
}

std::string Described(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return value.get_bool() ? "true" : "false";
    case json::kind::int64: return fmt::format("{}", value.get_int64());
    case json::kind::uint64: return fmt::format("{}", value.get_uint64());
    case json::kind::double_: return Shown(value.get_double());
    case json::kind::array: return "a list";
    case json::kind::object: return "an object";
    case json::kind::string: break;
  }
  const json::string& text = value.get_string();
  return text.size() > size_t{kMaxShownBytes} ? "a string" : "the string " + Quoted(text);
}

std::string Quoted(std::string_view text) {
  return fmt::format("\"{:.{}}\"", text, kMaxShownBytes);
}

std::optional<int64_t> ToInteger(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (!value.is_double()) return {};
  const double number = value.get_double();
  // 2^63, the first double beyond.
  constexpr double kEnd = 9223372036854775808.0;
  if (number != std::floor(number) || number < -kEnd || number >= kEnd) return {};
  return static_cast<int64_t>(number);
}

std::optional<ApiError> ReadTokenIds(const json::array& list, std::string_view name,
                                     int64_t vocab_size, std::vector<TokenId>& ids) {
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<int64_t> id = ToInteger(list[i]);
    if (!id || *id < 0 || *id >= vocab_size) {
      return BadRequest(fmt::format("{}[{}] is {}; ids of this model go from 0 to {}", name, i,
                                    Described(list[i]), vocab_size - 1),
                        std::string(name));
    }
    ids.emplace_back(static_cast<int32_t>(*id));
  }
  return {};
}

const json::value* RequestFields::Find(std::string_view name) {
  Know(name);
  const json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<bool> RequestFields::Bool(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  if (value->is_bool()) return value->get_bool();
  WrongType(name, *value, "true or false");
  return {};
}

std::optional<int64_t> RequestFields::Integer(std::string_view name, IntegerRange range) {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  const std::optional<int64_t> number = ToInteger(*value);
  if (number && *number >= range.low && *number <= range.high) return number;
  const bool is_number = number || value->is_uint64();
  const bool is_above =
      value->is_number() && value->to_number<double>() > static_cast<double>(range.high);
  const std::string expected = RangeText(range, is_above);
  WrongType(name, *value, is_number ? expected : "an integer, " + expected);
  return {};
}

std::optional<uint64_t> RequestFields::Bits(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  if (value->is_uint64()) return value->get_uint64();
  if (const std::optional<int64_t> number = ToInteger(*value)) {
    return static_cast<uint64_t>(*number);
  }
  WrongType(name, *value,
            fmt::format("an integer, from {} to {}", std::numeric_limits<int64_t>::min(),
                        std::numeric_limits<uint64_t>::max()));
  return {};
}

std::optional<double> RequestFields::Number(std::string_view name, NumberRange range) {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_number()) {
    WrongType(name, *value, "a number, " + RangeText(range, /*is_above=*/false));
    return {};
  }
  const double number = value->to_number<double>();
  // Written so that NaN fails.
  const bool above = range.low_open ? number > range.low : number >= range.low;
  if (above && number <= range.high) return number;
  WrongType(name, *value, RangeText(range, number > range.high));
  return {};
}

std::optional<std::string> RequestFields::String(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  if (const json::string* text = value->if_string()) return std::string(*text);
  WrongType(name, *value, "a string");
  return {};
}

const json::object* RequestFields::Object(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) WrongType(name, *value, "an object");
  return value->if_object();
}

const json::array* RequestFields::Array(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) WrongType(name, *value, "a list");
  return value->if_array();
}

std::optional<std::vector<std::string>> RequestFields::Strings(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return {};
  if (const json::string* text = value->if_string()) return {{std::string(*text)}};
  if (!value->is_array()) {
    WrongType(name, *value, "a string or a list of strings");
    return {};
  }
  std::vector<std::string> texts;
  for (const json::value& entry : value->get_array()) {
    if (!entry.is_string()) {
      WrongType(fmt::format("{}[{}]", name, texts.size()), entry, "a string");
      return {};
    }
    texts.emplace_back(entry.get_string());
  }
  return texts;
}

std::optional<std::vector<TokenId>> RequestFields::TokenIds(std::string_view name,
                                                            int64_t vocab_size) {
  const json::array* list = Array(name);
  if (list == nullptr) return {};
  std::vector<TokenId> ids;
  if (std::optional<ApiError> wrong =
          ReadTokenIds(*list, path_ + std::string(name), vocab_size, ids)) {
    Fail(*std::move(wrong));
    return {};
  }
  return ids;
}

std::vector<std::string> RequestFields::Unknown() const {
  std::vector<std::string> unknown;
  for (const auto& entry : object_) {
    const std::string_view name(entry.key().data(), entry.key().size());
    if (std::ranges::find(known_, name) == known_.end()) unknown.emplace_back(name);
  }
  return unknown;
}

void RequestFields::Fail(std::string_view name, std::string message) {
  Fail(BadRequest(std::move(message), path_ + std::string(name)));
}

void RequestFields::Fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void RequestFields::WrongType(std::string_view name, const json::value& found,
                              std::string_view expected) {
  Fail(name, fmt::format("{}{} is {}; it must be {}", path_, name, Described(found), expected));
}

}  // namespace spry
