// Filters on values of any kind, and on numbers.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/json_text.h"
#include "text/jinja/operators.h"

namespace spry::jinja {
namespace {

Result<Value> Default(Runtime&, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("default", arguments,
                                                               {"default_value", "boolean"}, 0));
  const bool replaced = input.is_undefined() || (bound.IsTrueAt(1, false) && !IsTrue(input));
  if (!replaced) return input;
  return bound.Get(0) == nullptr ? Value::String("") : *bound.Get(0);
}

Result<Value> Attribute(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("attr", arguments, {"name"}, 1));
  SPRY_ASSIGN_OR_RETURN(const Text* name, bound.TextAt(0));
  // Unlike a point in an expression it does not look at items.
  if (input.dict() != nullptr && input.dict()->Find(name->bytes) != nullptr) {
    SPRY_ASSIGN_OR_RETURN(
        const Value plain,
        runtime.GetAttribute(Value::Of(std::make_shared<const Dict>()), name->bytes));
    if (plain.is_undefined()) return plain;
  }
  return runtime.GetAttribute(input, name->bytes);
}

Result<Value> Absolute(Runtime&, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("abs", arguments, {}, 0).status());
  if (input.is_float()) return Value::Float(std::fabs(input.as_double()));
  if (!input.is_int()) {
    return InvalidArgument(
        fmt::format("abs: expected a number, found a value of type {}", input.TypeName()));
  }
  return input.as_int() < 0 ? Negative(input) : Value::Int(input.as_int());
}

// Digits with single underscores between them, which are taken out.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      return {};
    }
  }
  return out;
}

std::optional<double> ReadFloat(std::string_view text) {
  const auto plain = WithoutUnderscores(Strip(text, Sides::kBoth));
  if (!plain) return {};
  std::string_view digits = *plain;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.starts_with("+-")) return {};
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return {};
  if (error == std::errc::result_out_of_range)
    value = digits.starts_with('-') ? -HUGE_VAL : HUGE_VAL;
  return value;
}

std::optional<int64_t> ReadInt(std::string_view text, int base) {
  const auto plain = WithoutUnderscores(Strip(text, Sides::kBoth));
  if (!plain) return {};
  std::string_view digits = *plain;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  std::string without_prefix;
  const bool negative = digits.starts_with('-');
  const std::string_view after_sign = digits.substr(negative ? 1 : 0);
  const auto has_prefix = [&](int wanted, char letter) {
    return (base == wanted || base == 0) && after_sign.size() > 2 && after_sign[0] == '0' &&
           (after_sign[1] | 0x20) == letter;
  };
  for (const auto& [wanted, letter] : {std::pair(16, 'x'), std::pair(8, 'o'), std::pair(2, 'b')}) {
    if (!has_prefix(wanted, letter)) continue;
    without_prefix = (negative ? "-" : "") + std::string(after_sign.substr(2));
    digits = without_prefix;
    base = wanted;
    break;
  }
  if (base == 0) base = 10;
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  return value;
}

// Truncated; nothing where it has no integer.
Result<std::optional<Value>> FloatToInt(double value) {
  if (std::isnan(value) || std::isinf(value)) return std::optional<Value>();
  if (std::fabs(value) >= 0x1p63) {
    return InvalidArgument("an integer does not fit in 64 bits, which is the limit here");
  }
  return std::optional<Value>(Value::Int(static_cast<int64_t>(value)));
}

Result<Value> ToInt(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("int", arguments, {"default", "base"}, 0));
  SPRY_ASSIGN_OR_RETURN(const int64_t base, bound.Int(1, 10));
  if (base != 0 && (base < 2 || base > 36)) return InvalidArgument("int: the base is not 2 to 36");
  if (input.is_undefined()) return InvalidArgument(std::string(input.why()));
  if (input.is_int()) return Value::Int(input.as_int());
  std::optional<double> number;
  if (input.is_float()) number = input.as_double();
  if (const Text* text = input.text()) {
    SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text->bytes.size()));
    if (const auto value = ReadInt(text->bytes, static_cast<int>(base))) return Value::Int(*value);
    number = ReadFloat(text->bytes);
  }
  if (number) {
    SPRY_ASSIGN_OR_RETURN(std::optional<Value> value, FloatToInt(*number));
    if (value) return *std::move(value);
  }
  return bound.Get(0) == nullptr ? Value::Int(0) : *bound.Get(0);
}

Result<Value> ToFloat(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("float", arguments, {"default"}, 0));
  if (input.is_undefined()) return InvalidArgument(std::string(input.why()));
  if (input.is_number()) return Value::Float(input.as_double());
  if (const Text* text = input.text()) {
    SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text->bytes.size()));
    if (const auto value = ReadFloat(text->bytes)) return Value::Float(*value);
  }
  return bound.Get(0) == nullptr ? Value::Float(0) : *bound.Get(0);
}

// Half to even in decimal, as Python rounds: through the exact decimal digits.
double RoundTo(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  if (precision < 0) {
    const double scale = std::pow(10.0, -static_cast<double>(precision));
    return std::isfinite(scale) ? std::nearbyint(value / scale) * scale : 0.0 * value;
  }
  const std::string text = fmt::format("{:.{}f}", value, std::min<int64_t>(precision, 400));
  double rounded = value;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

Result<Value> RoundInt(int64_t value, int64_t precision) {
  if (precision >= 0) return Value::Int(value);
  if (precision < -18) return Value::Int(0);
  int64_t scale = 1;
  for (int64_t i = precision; i < 0; ++i) scale *= 10;
  const int64_t below = value - ((value % scale) + scale) % scale;
  const int64_t rest = value - below;
  const bool up = rest * 2 > scale || (rest * 2 == scale && (below / scale) % 2 != 0);
  return Value::Int(up ? below + scale : below);
}

Result<Value> Round(Runtime&, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("round", arguments, {"precision", "method"}, 0));
  SPRY_ASSIGN_OR_RETURN(const int64_t precision, bound.Int(0, 0));
  SPRY_ASSIGN_OR_RETURN(const std::string_view method, bound.TextAt(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return InvalidArgument("round: the method must be common, ceil or floor");
  }
  if (input.is_undefined()) return InvalidArgument(std::string(input.why()));
  if (!input.is_number()) {
    return InvalidArgument(
        fmt::format("round: expected a number, found a value of type {}", input.TypeName()));
  }
  if (method == "common") {
    return input.is_int() ? RoundInt(input.as_int(), precision)
                          : Value::Float(RoundTo(input.as_double(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_double() * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> ToJson(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("tojson", arguments,
                           {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonStyle style;
  style.ascii = bound.IsTrueAt(0, false);
  style.sort_keys = bound.IsTrueAt(3, false);
  if (const Value* indent = bound.GetUnlessNone(1)) {
    if (indent->text() != nullptr) {
      style.indent = indent->text()->bytes;
    } else {
      SPRY_ASSIGN_OR_RETURN(const int64_t width, bound.Int(1));
      SPRY_RETURN_IF_ERROR(CheckFormatWidth(width));
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (const Value* separators = bound.GetUnlessNone(2)) {
    SPRY_ASSIGN_OR_RETURN(const std::vector<Value> pair, runtime.ItemsOf(*separators));
    if (pair.size() != 2 || pair[0].text() == nullptr || pair[1].text() == nullptr) {
      return InvalidArgument("tojson: 'separators' must be two strings");
    }
    style.item_separator = pair[0].text()->bytes;
    style.key_separator = pair[1].text()->bytes;
  }
  SPRY_ASSIGN_OR_RETURN(std::string text, WriteJson(runtime, input, style));
  return runtime.MakeText(std::move(text));
}

constexpr Filter kValueFilters[] = {
    {"abs", Absolute},  {"attr", Attribute}, {"d", Default},   {"default", Default},
    {"float", ToFloat}, {"int", ToInt},      {"round", Round}, {"tojson", ToJson},
};

}  // namespace

std::span<const Filter> ValueFilters() { return kValueFilters; }

}  // namespace spry::jinja
