#include "text/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

#include "text/jinja/arguments.h"
#include "text/jinja/compare.h"
#include "text/jinja/runtime.h"

namespace spry::jinja {
namespace {

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, const Method& method) : self_(std::move(self)), method_(method) {}

  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  int depth() const override { return self_.depth() + 1; }
  Result<Value> Call(Runtime& runtime, Arguments arguments) override {
    if (method_.function == nullptr) {
      return Unimplemented(fmt::format("the method '{}' of a value of type {} is not supported",
                                       method_.name, self_.TypeName()));
    }
    return method_.function(runtime, self_, arguments);
  }

 private:
  Value self_;
  const Method& method_;
};

Result<Value> DictGet(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace("get", arguments, {"key", "default"}, 1));
  SPRY_RETURN_IF_ERROR(runtime.CheckKey(*bound.Get(0)));
  if (const Value* found = self.dict()->Find(*bound.Get(0))) return *found;
  return bound.Get(1) == nullptr ? Value::None() : *bound.Get(1);
}

Result<Value> DictCopy(Runtime&, const Value& self, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::BindByPlace("copy", arguments, {}, 0).status());
  return self;
}

Result<Value> View(Runtime& runtime, const Value& self, const Arguments& arguments,
                   SequenceKind kind) {
  SPRY_RETURN_IF_ERROR(BoundArguments::BindByPlace("this method", arguments, {}, 0).status());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries()) {
    if (kind == SequenceKind::kKeys) items.push_back(key);
    if (kind == SequenceKind::kValues) items.push_back(value);
    if (kind == SequenceKind::kItems)
      items.push_back(Value::Of(SequenceKind::kTuple, {key, value}));
  }
  return runtime.MakeSequence(kind, std::move(items));
}

Result<Value> DictKeys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return View(runtime, self, arguments, SequenceKind::kKeys);
}
Result<Value> DictValues(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return View(runtime, self, arguments, SequenceKind::kValues);
}
Result<Value> DictItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return View(runtime, self, arguments, SequenceKind::kItems);
}

Result<Value> Count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace("count", arguments, {"value"}, 1));
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(self));
  int64_t count = 0;
  for (const Value& item : items) {
    SPRY_ASSIGN_OR_RETURN(const bool equal, runtime.Equal(item, *bound.Get(0)));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

Result<Value> Index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::BindByPlace(
                                              "index", arguments, {"value", "start", "stop"}, 1));
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(self));
  const auto size = static_cast<int64_t>(items.size());
  SPRY_ASSIGN_OR_RETURN(int64_t start, bound.Int(1, 0));
  SPRY_ASSIGN_OR_RETURN(int64_t stop, bound.Int(2, size));
  start = std::max<int64_t>(start < 0 ? start + size : start, 0);
  stop = std::min<int64_t>(stop < 0 ? stop + size : stop, size);
  for (int64_t i = start; i < stop; ++i) {
    SPRY_ASSIGN_OR_RETURN(const bool equal,
                          runtime.Equal(items[static_cast<size_t>(i)], *bound.Get(0)));
    if (equal) return Value::Int(i);
  }
  return InvalidArgument("index: the value is not in there");
}

Result<Value> ListCopy(Runtime&, const Value& self, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::BindByPlace("copy", arguments, {}, 0).status());
  return self;
}

constexpr Method kDictMethods[] = {{"copy", DictCopy}, {"fromkeys", nullptr},
                                   {"get", DictGet},   {"items", DictItems},
                                   {"keys", DictKeys}, {"values", DictValues}};
constexpr Method kListMethods[] = {{"copy", ListCopy}, {"count", Count}, {"index", Index}};
constexpr Method kTupleMethods[] = {{"count", Count}, {"index", Index}};

// jinja2's sandbox hides these.
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};

std::span<const Method> MethodsOf(const Value& value) {
  if (value.text() != nullptr) return TextMethods();
  if (value.dict() != nullptr) return kDictMethods;
  if (value.is_list()) return kListMethods;
  if (value.is_tuple() || value.range() != nullptr) return kTupleMethods;
  return {};
}

std::span<const std::string_view> ChangesOf(const Value& value) {
  if (value.dict() != nullptr) return kDictChanges;
  if (value.is_list()) return kListChanges;
  return {};
}

}  // namespace

std::optional<Value> FindMethod(const Value& value, std::string_view name) {
  for (const Method& method : MethodsOf(value)) {
    if (method.name == name)
      return Value::Of(std::shared_ptr<Object>(std::make_shared<BoundMethod>(value, method)));
  }
  for (const std::string_view change : ChangesOf(value)) {
    if (change != name) continue;
    return Value::Undefined(
        fmt::format("'{}' would change a value of type {}, which a template "
                    "must not do; expected an expression that makes a new one",
                    name, value.TypeName()));
  }
  return {};
}

}  // namespace spry::jinja
