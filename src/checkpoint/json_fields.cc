#include "checkpoint/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "checkpoint/mapped_file.h"
#include "checkpoint/printable.h"
#include "text/json_parse.h"

namespace spry {
namespace {

constexpr size_t kMaxJsonBytes = 100'000'000;  // the limit of safetensors headers, for all files

std::string Expected(IntegerRange range) {
  return fmt::format("an integer from {} to {}", range.min, range.max);
}

std::optional<int64_t> InRange(simdjson::dom::element element, IntegerRange range) {
  int64_t value = 0;
  if (element.get_int64().get(value) != simdjson::SUCCESS) return std::nullopt;
  if (value < range.min || value > range.max) return std::nullopt;
  return value;
}

}  // namespace

Result<JsonFields> JsonFields::Make(simdjson::dom::element element, std::string where) {
  simdjson::dom::object object;
  if (element.get_object().get(object) != simdjson::SUCCESS) {
    return InvalidArgument(fmt::format("{}: is not a JSON object", where));
  }
  std::vector<std::string_view> keys;
  for (const simdjson::dom::key_value_pair field : object) keys.push_back(field.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    return InvalidArgument(fmt::format("{}: the key {} is there twice", where, Printable(*twice)));
  }
  return JsonFields(object, std::move(where));
}

std::optional<simdjson::dom::element> JsonFields::Find(std::string_view key) const {
  simdjson::dom::element element;
  if (object_.at_key(key).get(element) != simdjson::SUCCESS || element.is_null()) {
    return std::nullopt;
  }
  return element;
}

Status JsonFields::Wrong(std::string_view key, std::string_view expected) const {
  std::ostringstream found;
  if (const auto element = Find(key)) found << simdjson::minify(*element);
  return InvalidArgument(
      fmt::format("{}: \"{}\" is {}, expected {}", where_, key, Printable(found.str()), expected));
}

Status JsonFields::Missing(std::string_view key) const {
  return InvalidArgument(fmt::format("{}: \"{}\" is missing", where_, key));
}

Result<std::optional<int64_t>> JsonFields::Integer(std::string_view key, IntegerRange range) const {
  const auto element = Find(key);
  if (!element) return std::optional<int64_t>();
  const std::optional<int64_t> value = InRange(*element, range);
  if (!value) return Wrong(key, Expected(range));
  return value;
}

Result<std::optional<double>> JsonFields::Number(std::string_view key, NumberRange range) const {
  const auto element = Find(key);
  if (!element) return std::optional<double>();
  double value = 0;
  if (element->get_double().get(value) != simdjson::SUCCESS ||
      !(value >= range.min && value <= range.max)) {
    return Wrong(key, fmt::format("a number from {} to {}", range.min, range.max));
  }
  return std::optional(value);
}

Result<std::optional<bool>> JsonFields::Flag(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return std::optional<bool>();
  bool value = false;
  if (element->get_bool().get(value) != simdjson::SUCCESS) return Wrong(key, "true or false");
  return std::optional(value);
}

Result<std::optional<std::string>> JsonFields::Text(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return std::optional<std::string>();
  std::string_view value;
  if (element->get_string().get(value) != simdjson::SUCCESS) return Wrong(key, "a string");
  return std::optional(std::string(value));
}

Result<std::optional<JsonFields>> JsonFields::Object(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return std::optional<JsonFields>();
  if (!element->is_object()) return Wrong(key, "an object");
  SPRY_ASSIGN_OR_RETURN(JsonFields object, Make(*element, fmt::format("{}: {}", where_, key)));
  return std::optional(std::move(object));
}

Result<std::vector<std::string>> JsonFields::TextList(std::string_view key) const {
  std::vector<std::string> values;
  const auto element = Find(key);
  if (!element) return values;
  simdjson::dom::array array;
  if (element->get_array().get(array) != simdjson::SUCCESS) return Wrong(key, "a list of strings");
  for (const simdjson::dom::element item : array) {
    std::string_view value;
    if (item.get_string().get(value) != simdjson::SUCCESS) return Wrong(key, "a list of strings");
    values.emplace_back(value);
  }
  return values;
}

Result<std::vector<int64_t>> JsonFields::IntegerOrList(std::string_view key,
                                                       IntegerRange range) const {
  std::vector<int64_t> values;
  const auto element = Find(key);
  if (!element) return values;
  simdjson::dom::array array;
  if (element->get_array().get(array) != simdjson::SUCCESS) {
    SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Integer(key, range));
    values.push_back(*value);
    return values;
  }
  for (const simdjson::dom::element item : array) {
    const std::optional<int64_t> value = InRange(item, range);
    if (!value) return Wrong(key, Expected(range) + ", or a list of them");
    values.push_back(*value);
  }
  return values;
}

Result<int64_t> JsonFields::RequiredInteger(std::string_view key, IntegerRange range) const {
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Integer(key, range));
  if (!value) return Missing(key);
  return *value;
}

Result<double> JsonFields::RequiredNumber(std::string_view key, NumberRange range) const {
  SPRY_ASSIGN_OR_RETURN(const std::optional<double> value, Number(key, range));
  if (!value) return Missing(key);
  return *value;
}

Result<JsonText> JsonText::Read(const std::filesystem::path& path) {
  SPRY_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  return Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

Result<JsonText> JsonText::Parse(std::string_view text, const std::string& where) {
  if (text.size() > kMaxJsonBytes) {
    return InvalidArgument(fmt::format("{}: {} bytes of JSON, expected at most {}", where,
                                       text.size(), kMaxJsonBytes));
  }
  auto parser = std::make_unique<simdjson::dom::parser>();
  simdjson::dom::element element;
  const simdjson::error_code error = ParseJson(text, *parser, element);
  if (error != simdjson::SUCCESS) {
    return InvalidArgument(
        fmt::format("{}: is not valid JSON: {}", where, simdjson::error_message(error)));
  }
  SPRY_ASSIGN_OR_RETURN(JsonFields root, JsonFields::Make(element, where));
  return JsonText(std::move(parser), std::move(root));
}

}  // namespace spry
