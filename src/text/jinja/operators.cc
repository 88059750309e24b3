#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/characters.h"
#include "text/jinja/escape_html.h"
#include "text/jinja/format.h"
#include "text/jinja/limits.h"

namespace spry::jinja {
namespace {

std::string_view Symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd: return "+";
    case BinaryOperator::kSubtract: return "-";
    case BinaryOperator::kMultiply: return "*";
    case BinaryOperator::kDivide: return "/";
    case BinaryOperator::kFloorDivide: return "//";
    case BinaryOperator::kModulo: return "%";
    case BinaryOperator::kPower: return "**";
  }
  return "?";
}

Status Overflow() {
  return InvalidArgument("an integer does not fit in 64 bits, which is the limit here");
}

Status DivisionByZero() { return InvalidArgument("division by zero"); }

template <typename Operation>
Result<Value> Checked(Operation operation, int64_t a, int64_t b) {
  int64_t result = 0;
  if (operation(a, b, &result)) return Overflow();
  return Value::Int(result);
}

bool Add(int64_t a, int64_t b, int64_t* result) { return __builtin_add_overflow(a, b, result); }
bool Subtract(int64_t a, int64_t b, int64_t* result) {
  return __builtin_sub_overflow(a, b, result);
}
bool Multiply(int64_t a, int64_t b, int64_t* result) {
  return __builtin_mul_overflow(a, b, result);
}

Result<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  if (base == 0 || base == 1 || exponent == 0) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return Overflow();
  }
  return Value::Int(result);
}

Result<Value> ApplyToIntegers(BinaryOperator op, int64_t a, int64_t b) {
  switch (op) {
    case BinaryOperator::kAdd: return Checked(Add, a, b);
    case BinaryOperator::kSubtract: return Checked(Subtract, a, b);
    case BinaryOperator::kMultiply: return Checked(Multiply, a, b);
    case BinaryOperator::kPower: return IntegerPower(a, b);
    default: break;
  }
  if (b == 0) return DivisionByZero();
  if (op == BinaryOperator::kDivide) {
    return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  }
  if (b == -1) return op == BinaryOperator::kModulo ? Value::Int(0) : Negative(Value::Int(a));
  // Python rounds down, C++ towards zero.
  const int64_t rest = a % b;
  const bool rounds = rest != 0 && (rest < 0) != (b < 0);
  if (op == BinaryOperator::kModulo) return Value::Int(rounds ? rest + b : rest);
  return Value::Int(a / b - (rounds ? 1 : 0));
}

double FloatModulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

// As Python computes it, so that the last bit agrees.
double FloatFloorDivision(double a, double b) {
  const double quotient = (a - FloatModulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1.0 : floor;
}

Result<Value> ApplyToFloats(BinaryOperator op, double a, double b) {
  const bool divides = op == BinaryOperator::kDivide || op == BinaryOperator::kFloorDivide ||
                       op == BinaryOperator::kModulo;
  if (divides && b == 0) return DivisionByZero();
  switch (op) {
    case BinaryOperator::kAdd: return Value::Float(a + b);
    case BinaryOperator::kSubtract: return Value::Float(a - b);
    case BinaryOperator::kMultiply: return Value::Float(a * b);
    case BinaryOperator::kDivide: return Value::Float(a / b);
    case BinaryOperator::kFloorDivide: return Value::Float(FloatFloorDivision(a, b));
    case BinaryOperator::kModulo: return Value::Float(FloatModulo(a, b));
    case BinaryOperator::kPower: break;
  }
  if (a == 0 && b < 0) return DivisionByZero();
  const double power = std::pow(a, b);
  if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) {
    return InvalidArgument("a power of a negative number is complex, which templates have not");
  }
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
    return InvalidArgument("a power is too large for a float");
  }
  return Value::Float(power);
}

// Text marked safe escapes what it is joined with.
Result<Value> AddTexts(Runtime& runtime, const Text& left, const Text& right) {
  const bool safe = left.safe || right.safe;
  const auto part = [&](const Text& text) {
    return safe && !text.safe ? EscapeHtml(text.bytes) : text.bytes;
  };
  SPRY_RETURN_IF_ERROR(runtime.CheckText(left.bytes.size() + right.bytes.size()));
  if (safe) SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(left.bytes.size() + right.bytes.size()));
  return runtime.MakeText(part(left) + part(right), safe);
}

Result<Value> Repeat(Runtime& runtime, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const Text* text = value.text()) {
    size_t size = 0;
    if (__builtin_mul_overflow(text->bytes.size(), count, &size)) size = SIZE_MAX;
    SPRY_RETURN_IF_ERROR(runtime.CheckText(size));
    SPRY_RETURN_IF_ERROR(runtime.ChargeText(size));
    std::string out;
    out.reserve(size);
    if (!text->bytes.empty()) {
      for (size_t i = 0; i < count; ++i) out += text->bytes;
    }
    return runtime.MakeText(std::move(out), text->safe);
  }
  const Sequence& sequence = *value.sequence();
  size_t size = 0;
  if (__builtin_mul_overflow(sequence.items.size(), count, &size)) size = SIZE_MAX;
  SPRY_RETURN_IF_ERROR(runtime.CheckItems(size));
  std::vector<Value> items;
  items.reserve(size);
  while (items.size() < size) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return runtime.MakeSequence(sequence.kind, std::move(items));
}

bool Repeats(const Value& value) {
  return value.text() != nullptr || value.is_list() || value.is_tuple();
}

// What Python allows beside numbers; nothing when it does not.
Result<std::optional<Value>> ApplyToOthers(Runtime& runtime, BinaryOperator op, const Value& left,
                                           const Value& right) {
  if (op == BinaryOperator::kModulo && left.text() != nullptr) {
    SPRY_ASSIGN_OR_RETURN(std::string text, FormatWithPercent(runtime, left.text()->bytes, right));
    SPRY_ASSIGN_OR_RETURN(Value value, runtime.MakeText(std::move(text)));
    return std::optional<Value>(std::move(value));
  }
  if (op == BinaryOperator::kMultiply && (Repeats(left) || Repeats(right))) {
    const Value& times = Repeats(left) ? right : left;
    if (!times.is_int()) return std::optional<Value>();
    SPRY_ASSIGN_OR_RETURN(Value value,
                          Repeat(runtime, Repeats(left) ? left : right, times.as_int()));
    return std::optional<Value>(std::move(value));
  }
  if (op != BinaryOperator::kAdd) return std::optional<Value>();
  if (left.text() != nullptr && right.text() != nullptr) {
    SPRY_ASSIGN_OR_RETURN(Value value, AddTexts(runtime, *left.text(), *right.text()));
    return std::optional<Value>(std::move(value));
  }
  if ((left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple())) {
    std::vector<Value> items = left.sequence()->items;
    SPRY_RETURN_IF_ERROR(runtime.CheckItems(items.size() + right.sequence()->items.size()));
    items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
    SPRY_ASSIGN_OR_RETURN(Value value,
                          runtime.MakeSequence(left.sequence()->kind, std::move(items)));
    return std::optional<Value>(std::move(value));
  }
  return std::optional<Value>();
}

// Python's way to find the ends of a slice.
int64_t Clipped(const Value& bound, int64_t size, int64_t lowest, int64_t highest,
                int64_t otherwise) {
  if (!bound.is_int()) return otherwise;
  int64_t at = bound.as_int();
  if (at < 0) at = at < -size ? -1 - size : at;
  if (at < 0) at += size;
  return std::clamp(at, lowest, highest);
}

Result<Value> SliceText(Runtime& runtime, const Text& text, const std::vector<int64_t>& places,
                        int64_t step) {
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(text.bytes.size()));
  if (places.empty()) return runtime.MakeText("", text.safe);
  if (step == 1) {
    const std::string_view bytes = text.bytes;
    if (text.ascii()) {
      return runtime.MakeText(
          std::string(bytes.substr(static_cast<size_t>(places[0]), static_cast<size_t>(places[1]))),
          text.safe);
    }
    const std::string_view rest = bytes.substr(ByteOfCharacter(bytes, places[0]));
    return runtime.MakeText(std::string(rest.substr(0, ByteOfCharacter(rest, places[1]))),
                            text.safe);
  }
  SPRY_RETURN_IF_ERROR(runtime.CheckItems(static_cast<size_t>(text.length)));
  const std::vector<std::string_view> characters = SplitCharacters(text.bytes);
  std::string out;
  for (int64_t i = 0, at = places[0]; i < places[1]; ++i, at += step) {
    out += characters[static_cast<size_t>(at)];
  }
  return runtime.MakeText(std::move(out), text.safe);
}

}  // namespace

Result<Value> Apply(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right) {
  if (left.is_int() && right.is_int()) {
    return ApplyToIntegers(op, left.as_int(), right.as_int());
  }
  if (left.is_number() && right.is_number()) {
    return ApplyToFloats(op, left.as_double(), right.as_double());
  }
  if (left.is_undefined()) return InvalidArgument(std::string(left.why()));
  const bool formats = op == BinaryOperator::kModulo && left.text() != nullptr;
  if (right.is_undefined() && !formats) return InvalidArgument(std::string(right.why()));
  SPRY_ASSIGN_OR_RETURN(std::optional<Value> result, ApplyToOthers(runtime, op, left, right));
  if (result) return *std::move(result);
  return InvalidArgument(fmt::format("'{}' does not go with values of types {} and {}", Symbol(op),
                                     left.TypeName(), right.TypeName()));
}

Result<Value> Negative(const Value& value) {
  if (value.is_undefined()) return InvalidArgument(std::string(value.why()));
  if (value.is_float()) return Value::Float(-value.as_double());
  if (!value.is_int()) {
    return InvalidArgument(
        fmt::format("'-' needs a number, found a value of type {}", value.TypeName()));
  }
  return Checked(Subtract, 0, value.as_int());
}

Result<Value> Positive(const Value& value) {
  if (value.is_undefined()) return InvalidArgument(std::string(value.why()));
  if (value.is_float()) return value;
  if (value.is_int()) return Value::Int(value.as_int());
  return InvalidArgument(
      fmt::format("'+' needs a number, found a value of type {}", value.TypeName()));
}

Result<Value> Slice(Runtime& runtime, const Value& value, const SliceBounds& bounds) {
  if (value.is_undefined()) return InvalidArgument(std::string(value.why()));
  const bool sliceable =
      value.text() != nullptr || value.range() != nullptr || value.is_list() || value.is_tuple();
  if (!sliceable) {
    return InvalidArgument(fmt::format("a value of type {} cannot be sliced", value.TypeName()));
  }
  for (const Value* bound : {&bounds.start, &bounds.stop, &bounds.step}) {
    if (bound->is_int() || bound->is_none()) continue;
    return InvalidArgument(
        fmt::format("the bounds of a slice must be integers, found {} of type {}",
                    bound->is_undefined() ? "an undefined value" : "a value", bound->TypeName()));
  }
  SPRY_ASSIGN_OR_RETURN(const int64_t size, LengthOf(value));
  const int64_t step = bounds.step.is_int() ? bounds.step.as_int() : 1;
  if (step == 0) return InvalidArgument("the step of a slice is 0");
  const int64_t lowest = step < 0 ? -1 : 0;
  const int64_t highest = step < 0 ? size - 1 : size;
  const int64_t start = Clipped(bounds.start, size, lowest, highest, step < 0 ? highest : lowest);
  const int64_t stop = Clipped(bounds.stop, size, lowest, highest, step < 0 ? lowest : highest);
  const int64_t span = step > 0 ? stop - start : start - stop;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const int64_t count =
      span <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride) + 1;
  if (const Range* range = value.range()) {
    int64_t new_step = 0;
    if (__builtin_mul_overflow(range->step, step, &new_step)) return Overflow();
    return Value::Of(
        Range{.start = range->At(start), .stop = range->At(stop), .step = new_step, .size = count});
  }
  if (value.text() != nullptr) {
    if (count == 0) return SliceText(runtime, *value.text(), {}, step);
    return SliceText(runtime, *value.text(), {start, count}, step);
  }
  const std::vector<Value>& all = value.sequence()->items;
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) items.push_back(all[static_cast<size_t>(start + i * step)]);
  return runtime.MakeSequence(value.sequence()->kind, std::move(items));
}

Result<int64_t> LengthOf(const Value& value) {
  if (value.is_undefined()) return int64_t{0};
  if (value.text() != nullptr) return value.text()->length;
  if (value.range() != nullptr) return value.range()->size;
  if (value.sequence() != nullptr) return static_cast<int64_t>(value.sequence()->items.size());
  if (value.dict() != nullptr) return static_cast<int64_t>(value.dict()->entries().size());
  if (value.object() != nullptr) {
    if (const auto items = value.object()->Items()) return static_cast<int64_t>(items->size());
  }
  return InvalidArgument(fmt::format("a value of type {} has no length", value.TypeName()));
}

}  // namespace spry::jinja
