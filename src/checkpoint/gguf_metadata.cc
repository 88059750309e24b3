#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "checkpoint/gguf.h"
#include "checkpoint/printable.h"

namespace spry {
namespace {

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// Nothing when the type is no integer or the value is beyond int64.
std::optional<int64_t> LoadInteger(GgufType type, const std::byte* data) {
  switch (type) {
    case GgufType::kU8: return Load<uint8_t>(data);
    case GgufType::kI8: return Load<int8_t>(data);
    case GgufType::kU16: return Load<uint16_t>(data);
    case GgufType::kI16: return Load<int16_t>(data);
    case GgufType::kU32: return Load<uint32_t>(data);
    case GgufType::kI32: return Load<int32_t>(data);
    case GgufType::kI64: return Load<int64_t>(data);
    case GgufType::kU64: {
      const int64_t value = Load<int64_t>(data);
      return value < 0 ? std::nullopt : std::optional(value);
    }
    default: return std::nullopt;
  }
}

std::optional<double> LoadNumber(GgufType type, const std::byte* data) {
  if (type == GgufType::kF32) return Load<float>(data);
  if (type == GgufType::kF64) return Load<double>(data);
  const std::optional<int64_t> integer = LoadInteger(type, data);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

std::string_view LoadText(const std::byte* data) {
  return {reinterpret_cast<const char*>(data) + sizeof(uint64_t),
          static_cast<size_t>(Load<uint64_t>(data))};
}

int64_t IntegerBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32: return 4;
    case GgufType::kU64:
    case GgufType::kI64: return 8;
    default: return 0;
  }
}

std::string Describe(const GgufMetadata::Value& value) {
  if (value.is_array) return fmt::format("an array of {} elements", value.count);
  if (value.type == GgufType::kString) return Printable(LoadText(value.data));
  if (value.type == GgufType::kBool) return "a bool";
  const std::optional<double> number = LoadNumber(value.type, value.data);
  return number ? fmt::format("{}", *number) : "beyond 63 bits";
}

}  // namespace

Result<GgufMetadata> GgufMetadata::Make(std::string file, std::vector<Value> values) {
  std::sort(values.begin(), values.end(),
            [](const Value& a, const Value& b) { return a.key < b.key; });
  const auto twice = std::adjacent_find(
      values.begin(), values.end(), [](const Value& a, const Value& b) { return a.key == b.key; });
  if (twice != values.end()) {
    return InvalidArgument(
        fmt::format("{}: metadata key {} is there twice", file, Printable(twice->key)));
  }
  return GgufMetadata(std::move(file), std::move(values));
}

const GgufMetadata::Value* GgufMetadata::Find(std::string_view key) const {
  const auto found = std::lower_bound(
      values_.begin(), values_.end(), key,
      [](const Value& value, std::string_view wanted) { return value.key < wanted; });
  return found != values_.end() && found->key == key ? &*found : nullptr;
}

Status GgufMetadata::Wrong(std::string_view key, std::string_view found,
                           std::string_view expected) const {
  return InvalidArgument(
      fmt::format("{}: metadata key \"{}\" is {}, expected {}", file_, key, found, expected));
}

Status GgufMetadata::Missing(std::string_view key) const {
  return InvalidArgument(fmt::format("{}: metadata key \"{}\" is missing", file_, key));
}

bool GgufMetadata::IsArray(std::string_view key) const {
  const Value* value = Find(key);
  return value != nullptr && value->is_array;
}

Result<std::optional<int64_t>> GgufMetadata::Integer(std::string_view key,
                                                     IntegerRange range) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> number =
      value->is_array ? std::nullopt : LoadInteger(value->type, value->data);
  if (!number || *number < range.min || *number > range.max) {
    return Wrong(key, Describe(*value),
                 fmt::format("an integer from {} to {}", range.min, range.max));
  }
  return number;
}

Result<std::optional<double>> GgufMetadata::Number(std::string_view key, NumberRange range) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  const std::optional<double> number =
      value->is_array ? std::nullopt : LoadNumber(value->type, value->data);
  if (!number || !(*number >= range.min && *number <= range.max)) {
    return Wrong(key, Describe(*value),
                 fmt::format("a number from {} to {}", range.min, range.max));
  }
  return number;
}

Result<std::optional<bool>> GgufMetadata::Flag(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_array || value->type != GgufType::kBool) {
    return Wrong(key, Describe(*value), "a bool");
  }
  return std::optional(Load<uint8_t>(value->data) != 0);
}

Result<std::optional<std::string_view>> GgufMetadata::Text(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->is_array || value->type != GgufType::kString) {
    return Wrong(key, Describe(*value), "a string");
  }
  return std::optional(LoadText(value->data));
}

Result<std::optional<std::vector<std::string_view>>> GgufMetadata::TextList(
    std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<std::string_view>>();
  if (!value->is_array || value->type != GgufType::kString) {
    return Wrong(key, Describe(*value), "an array of strings");
  }
  std::vector<std::string_view> texts;
  texts.reserve(value->count);
  const std::byte* data = value->data;
  for (uint64_t i = 0; i < value->count; ++i) {
    texts.push_back(LoadText(data));
    data += sizeof(uint64_t) + texts.back().size();
  }
  return std::optional(std::move(texts));
}

Result<std::optional<std::vector<int64_t>>> GgufMetadata::IntegerList(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  const int64_t size = IntegerBytes(value->type);
  if (!value->is_array || size == 0) return Wrong(key, Describe(*value), "an array of integers");
  std::vector<int64_t> numbers;
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number = LoadInteger(value->type, value->data + i * size);
    if (!number) return Wrong(key, "beyond 63 bits", "an array of integers");
    numbers.push_back(*number);
  }
  return std::optional(std::move(numbers));
}

Result<std::optional<std::vector<float>>> GgufMetadata::FloatList(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<float>>();
  if (!value->is_array || value->type != GgufType::kF32) {
    return Wrong(key, Describe(*value), "an array of f32");
  }
  std::vector<float> numbers(value->count);
  std::memcpy(numbers.data(), value->data, value->count * sizeof(float));
  return std::optional(std::move(numbers));
}

Result<int64_t> GgufMetadata::RequiredInteger(std::string_view key, IntegerRange range) const {
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Integer(key, range));
  if (!value) return Missing(key);
  return *value;
}

Result<double> GgufMetadata::RequiredNumber(std::string_view key, NumberRange range) const {
  SPRY_ASSIGN_OR_RETURN(const std::optional<double> value, Number(key, range));
  if (!value) return Missing(key);
  return *value;
}

Result<std::string_view> GgufMetadata::RequiredText(std::string_view key) const {
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string_view> value, Text(key));
  if (!value) return Missing(key);
  return *value;
}

}  // namespace spry
