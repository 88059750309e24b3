// What may follow `is`.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"

namespace spry::jinja {
namespace {

// A test that only looks at the value.
template <bool (*Is)(const Value&)>
Result<bool> Plain(Runtime&, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("the test", arguments, {}, 0).status());
  return Is(input);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrueItself(const Value& value) { return value.is_bool() && value.as_bool(); }
bool IsFalseItself(const Value& value) { return value.is_bool() && !value.as_bool(); }
bool IsInteger(const Value& value) { return value.is_int() && !value.is_bool(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.text() != nullptr; }
bool IsMapping(const Value& value) { return value.dict() != nullptr; }
bool IsCallable(const Value& value) {
  // Python's undefined has a __call__, which fails.
  return value.is_undefined() || (value.object() != nullptr && value.object()->callable());
}
bool IsEscaped(const Value& value) { return value.text() != nullptr && value.text()->safe; }

// What has a length and can be indexed: strings and dicts too.
bool IsSequence(const Value& value) {
  return value.is_undefined() || value.text() != nullptr || value.dict() != nullptr ||
         value.range() != nullptr || value.is_list() || value.is_tuple() ||
         (value.object() != nullptr && value.object()->Items());
}

bool IsIterable(const Value& value) {
  return IsSequence(value) || value.sequence() != nullptr || value.iterator() != nullptr;
}

template <bool (*Is)(std::string_view)>
Result<bool> OfText(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("the test", arguments, {}, 0).status());
  SPRY_ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size()));
  return Is(text);
}

Result<bool> Remainder(Runtime& runtime, const Value& input, const Value& divisor, int64_t wanted) {
  SPRY_ASSIGN_OR_RETURN(const Value rest, Apply(runtime, BinaryOperator::kModulo, input, divisor));
  return AreEqual(rest, Value::Int(wanted));
}

Result<bool> IsOdd(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("odd", arguments, {}, 0).status());
  return Remainder(runtime, input, Value::Int(2), 1);
}

Result<bool> IsEven(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("even", arguments, {}, 0).status());
  return Remainder(runtime, input, Value::Int(2), 0);
}

Result<bool> IsDivisible(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("divisibleby", arguments, {"num"}, 1));
  return Remainder(runtime, input, *bound.Get(0), 0);
}

enum class Order { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

template <Order order>
Result<bool> Compared(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("the test", arguments, {"other"}, 1));
  const Value& other = *bound.Get(0);
  switch (order) {
    case Order::kEqual: return runtime.Equal(input, other);
    case Order::kNotEqual: {
      SPRY_ASSIGN_OR_RETURN(const bool equal, runtime.Equal(input, other));
      return !equal;
    }
    case Order::kLess: return runtime.Less(input, other);
    case Order::kLessOrEqual: return runtime.LessOrEqual(input, other);
    case Order::kGreater: return runtime.Less(other, input);
    case Order::kGreaterOrEqual: return runtime.LessOrEqual(other, input);
  }
  return Internal("a comparison of a kind that is unknown");
}

Result<bool> IsIn(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("in", arguments, {"seq"}, 1));
  return Contains(runtime, *bound.Get(0), input);
}

Result<bool> IsSameAs(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("sameas", arguments, {"other"}, 1));
  SPRY_RETURN_IF_ERROR(runtime.Charge(input.weight()));
  return input.IsSame(*bound.Get(0));
}

Result<bool> IsFilter(Runtime&, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("filter", arguments, {}, 0).status());
  return input.text() != nullptr && FindFilter(input.text()->bytes) != nullptr;
}

Result<bool> IsTest(Runtime&, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("test", arguments, {}, 0).status());
  return input.text() != nullptr && FindTest(input.text()->bytes) != nullptr;
}

constexpr Test kTests[] = {
    {"!=", Compared<Order::kNotEqual>},
    {"<", Compared<Order::kLess>},
    {"<=", Compared<Order::kLessOrEqual>},
    {"==", Compared<Order::kEqual>},
    {">", Compared<Order::kGreater>},
    {">=", Compared<Order::kGreaterOrEqual>},
    {"boolean", Plain<IsBoolean>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", IsDivisible},
    {"eq", Compared<Order::kEqual>},
    {"equalto", Compared<Order::kEqual>},
    {"escaped", Plain<IsEscaped>},
    {"even", IsEven},
    {"false", Plain<IsFalseItself>},
    {"filter", IsFilter},
    {"float", Plain<IsFloat>},
    {"ge", Compared<Order::kGreaterOrEqual>},
    {"greaterthan", Compared<Order::kGreater>},
    {"gt", Compared<Order::kGreater>},
    {"in", IsIn},
    {"integer", Plain<IsInteger>},
    {"iterable", Plain<IsIterable>},
    {"le", Compared<Order::kLessOrEqual>},
    {"lessthan", Compared<Order::kLess>},
    {"lower", OfText<IsLowerText>},
    {"lt", Compared<Order::kLess>},
    {"mapping", Plain<IsMapping>},
    {"ne", Compared<Order::kNotEqual>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", IsOdd},
    {"sameas", IsSameAs},
    {"sequence", Plain<IsSequence>},
    {"string", Plain<IsString>},
    {"test", IsTest},
    {"true", Plain<IsTrueItself>},
    {"undefined", Plain<IsUndefined>},
    {"upper", OfText<IsUpperText>},
};

}  // namespace

const Test* FindTest(std::string_view name) {
  for (const Test& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

const Filter* FindFilter(std::string_view name) {
  for (const auto filters : {TextFilters(), SequenceFilters(), ChoiceFilters(), ValueFilters()}) {
    for (const Filter& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace spry::jinja
