// Filters that look at, join or regroup what has items.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/attribute_path.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/limits.h"
#include "text/jinja/operators.h"

namespace spry::jinja {
namespace {

Status TakesNone(std::string_view filter, const Arguments& arguments) {
  return BoundArguments::Bind(filter, arguments, {}, 0).status();
}

Result<Value> Length(Runtime&, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("length", arguments));
  SPRY_ASSIGN_OR_RETURN(const int64_t length, LengthOf(input));
  return Value::Int(length);
}

Result<Value> ToList(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("list", arguments));
  SPRY_ASSIGN_OR_RETURN(std::vector<Value> items, runtime.ItemsOf(input));
  return runtime.MakeList(std::move(items));
}

Result<Value> First(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("first", arguments));
  if (Iterator* iterator = input.iterator()) {
    Value item;
    return iterator->Next(item) ? item : Value::Undefined("there is no first item");
  }
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  return items.empty() ? Value::Undefined("there is no first item") : items.front();
}

Result<Value> Last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("last", arguments));
  if (input.iterator() != nullptr) {
    return InvalidArgument(
        fmt::format("last: a value of type {} has no last item", input.TypeName()));
  }
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  return items.empty() ? Value::Undefined("there is no last item") : items.back();
}

Result<Value> Reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("reverse", arguments));
  SPRY_ASSIGN_OR_RETURN(std::vector<Value> items, runtime.ItemsOf(input));
  std::ranges::reverse(items);
  if (input.text() == nullptr) return runtime.MakeIterator(std::move(items));
  std::string text;
  for (const Value& character : items) text += character.text()->bytes;
  return runtime.MakeText(std::move(text), input.text()->safe);
}

Result<Value> Join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("join", arguments, {"d", "attribute"}, 0));
  std::string separator;
  if (bound.Get(0) != nullptr) {
    SPRY_ASSIGN_OR_RETURN(separator, runtime.ToText(*bound.Get(0)));
  }
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  SPRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.GetUnlessNone(1)));
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    SPRY_ASSIGN_OR_RETURN(const Value item, path.Of(runtime, items[i]));
    SPRY_ASSIGN_OR_RETURN(const std::string text, runtime.ToText(item));
    if (i > 0) joined += separator;
    joined += text;
    SPRY_RETURN_IF_ERROR(runtime.CheckText(joined.size()));
  }
  return runtime.MakeText(std::move(joined));
}

Result<Value> Items(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("items", arguments));
  std::vector<Value> items;
  if (const Dict* dict = input.dict()) {
    for (const auto& [key, value] : dict->entries()) {
      items.push_back(Value::Of(SequenceKind::kTuple, {key, value}));
    }
  } else if (!input.is_undefined()) {
    return InvalidArgument(
        fmt::format("items: expected a dict, found a value of type {}", input.TypeName()));
  }
  return runtime.MakeIterator(std::move(items));
}

Result<Value> Batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  SPRY_ASSIGN_OR_RETURN(const int64_t count, bound.Int(0));
  SPRY_ASSIGN_OR_RETURN(std::vector<Value> items, runtime.ItemsOf(input));
  const Value* fill = bound.GetUnlessNone(1);
  std::vector<Value> lines;
  std::vector<Value> line;
  const auto end_line = [&]() -> Status {
    SPRY_ASSIGN_OR_RETURN(Value list, runtime.MakeList(std::move(line)));
    lines.push_back(std::move(list));
    line.clear();
    return {};
  };
  for (Value& item : items) {
    if (static_cast<int64_t>(line.size()) == count) SPRY_RETURN_IF_ERROR(end_line());
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    if (fill != nullptr && static_cast<int64_t>(line.size()) < count) {
      SPRY_RETURN_IF_ERROR(runtime.CheckItems(static_cast<size_t>(count)));
      line.resize(static_cast<size_t>(count), *fill);
    }
    SPRY_RETURN_IF_ERROR(end_line());
  }
  return runtime.MakeIterator(std::move(lines));
}

Result<Value> SliceFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("slice", arguments, {"slices", "fill_with"}, 1));
  SPRY_ASSIGN_OR_RETURN(const int64_t slices, bound.Int(0));
  if (slices <= 0) return InvalidArgument("slice: the number of slices must be 1 or more");
  SPRY_RETURN_IF_ERROR(runtime.CheckItems(static_cast<size_t>(slices)));
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  const Value* fill = bound.GetUnlessNone(1);
  const auto size = static_cast<int64_t>(items.size());
  const int64_t longer = size % slices;
  std::vector<Value> parts;
  int64_t at = 0;
  for (int64_t slice = 0; slice < slices; ++slice) {
    const int64_t count = size / slices + (slice < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + at, items.begin() + at + count);
    at += count;
    if (fill != nullptr && slice >= longer) part.push_back(*fill);
    SPRY_ASSIGN_OR_RETURN(Value list, runtime.MakeList(std::move(part)));
    parts.push_back(std::move(list));
  }
  return runtime.MakeIterator(std::move(parts));
}

Result<Value> Sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("sum", arguments, {"attribute", "start"}, 0));
  SPRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.GetUnlessNone(0)));
  Value total = bound.Get(1) == nullptr ? Value::Int(0) : *bound.Get(1);
  if (total.text() != nullptr) return InvalidArgument("sum: strings are joined, not added");
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  for (const Value& item : items) {
    SPRY_ASSIGN_OR_RETURN(const Value value, path.Of(runtime, item));
    SPRY_ASSIGN_OR_RETURN(total, Apply(runtime, BinaryOperator::kAdd, total, value));
  }
  return total;
}

constexpr Filter kSequenceFilters[] = {
    {"batch", Batch},     {"count", Length},      {"first", First},   {"items", Items},
    {"join", Join},       {"last", Last},         {"length", Length}, {"list", ToList},
    {"reverse", Reverse}, {"slice", SliceFilter}, {"sum", Sum},
};

}  // namespace

std::span<const Filter> SequenceFilters() { return kSequenceFilters; }

}  // namespace spry::jinja
