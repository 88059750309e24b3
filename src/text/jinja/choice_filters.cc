// Filters that choose among items, order them, or pass each through something else.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/attribute_path.h"
#include "text/jinja/characters.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"

namespace spry::jinja {
namespace {

Arguments Without(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<ptrdiff_t>(count));
  return rest;
}

Result<Value> MapItems(Runtime& runtime, const Value& input, const Arguments& arguments) {
  // What counts as false has no items, even a number.
  if (!IsTrue(input)) return runtime.MakeIterator({});
  std::vector<Value> mapped;
  if (arguments.positional.empty() && !arguments.named.empty()) {
    SPRY_ASSIGN_OR_RETURN(const auto bound,
                          BoundArguments::Bind("map", arguments, {"attribute", "default"}, 1));
    SPRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.GetUnlessNone(0)));
    SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
    for (const Value& item : items) {
      SPRY_ASSIGN_OR_RETURN(Value value, path.Of(runtime, item, bound.GetUnlessNone(1)));
      mapped.push_back(std::move(value));
    }
    return runtime.MakeIterator(std::move(mapped));
  }
  if (arguments.positional.empty() || arguments.positional[0].text() == nullptr) {
    return InvalidArgument("map: expected the name of a filter, or attribute='name'");
  }
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  if (items.empty()) return runtime.MakeIterator({});
  const std::string& name = arguments.positional[0].text()->bytes;
  const Filter* filter = FindFilter(name);
  if (filter == nullptr) {
    return InvalidArgument(fmt::format("map: there is no filter '{}'", name.substr(0, 100)));
  }
  const Arguments rest = Without(arguments, 1);
  for (const Value& item : items) {
    SPRY_RETURN_IF_ERROR(runtime.Charge(1));
    SPRY_ASSIGN_OR_RETURN(Value value, filter->function(runtime, item, rest));
    mapped.push_back(std::move(value));
  }
  return runtime.MakeIterator(std::move(mapped));
}

// select, reject, selectattr, rejectattr: items whose test is `wanted`.
template <bool wanted, bool by_attribute>
Result<Value> Select(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!IsTrue(input)) return runtime.MakeIterator({});
  const Value* attribute = nullptr;
  if (by_attribute) {
    if (arguments.positional.empty()) {
      return InvalidArgument("selectattr and rejectattr need the name of an attribute");
    }
    attribute = &arguments.positional[0];
  }
  SPRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(attribute));
  constexpr size_t kBefore = by_attribute ? 1 : 0;
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  const Test* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > kBefore && !items.empty()) {
    const Text* name = arguments.positional[kBefore].text();
    test = name == nullptr ? nullptr : FindTest(name->bytes);
    if (test == nullptr) {
      return InvalidArgument(fmt::format("select and reject: there is no test '{}'",
                                         name == nullptr ? "" : name->bytes.substr(0, 100)));
    }
    rest = Without(arguments, kBefore + 1);
  }
  std::vector<Value> chosen;
  for (const Value& item : items) {
    SPRY_RETURN_IF_ERROR(runtime.Charge(1));
    SPRY_ASSIGN_OR_RETURN(const Value value, path.Of(runtime, item));
    bool passes = IsTrue(value);
    if (test != nullptr) {
      SPRY_ASSIGN_OR_RETURN(passes, test->function(runtime, value, rest));
    }
    if (passes == wanted) chosen.push_back(item);
  }
  return runtime.MakeIterator(std::move(chosen));
}

// An item with what it is ordered by.
struct Keyed {
  std::vector<Value> keys;
  Value item;
};

Result<Value> WithoutCase(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || value.text() == nullptr) return value;
  return runtime.MakeText(ToLower(value.text()->bytes));
}

Result<std::vector<Keyed>> KeyItems(Runtime& runtime, std::vector<Value> items,
                                    const std::vector<AttributePath>& paths, bool case_sensitive) {
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    Keyed entry;
    for (const AttributePath& path : paths) {
      SPRY_ASSIGN_OR_RETURN(const Value value, path.Of(runtime, item));
      SPRY_ASSIGN_OR_RETURN(Value key, WithoutCase(runtime, value, case_sensitive));
      entry.keys.push_back(std::move(key));
    }
    entry.item = std::move(item);
    keyed.push_back(std::move(entry));
  }
  return keyed;
}

// Stable. Where two keys have no order, or the steps run out, says so.
Status SortKeyed(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  Status status;
  const auto less = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size() && status.ok(); ++i) {
      // Python looks for the first keys that differ and then asks for their order.
      const Result<bool> equal = runtime.Equal(a.keys[i], b.keys[i]);
      if (!equal.ok()) status = equal.status();
      if (!equal.ok() || (*equal && i + 1 < a.keys.size())) continue;
      const Result<bool> result = runtime.Less(a.keys[i], b.keys[i]);
      if (!result.ok()) status = result.status();
      return result.ok() && *result;
    }
    return false;
  };
  const auto order = [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b, a) : less(a, b);
  };
  std::ranges::stable_sort(items, order);
  return status;
}

Result<std::vector<AttributePath>> ParsePaths(const Value* attribute) {
  std::vector<AttributePath> paths;
  if (attribute == nullptr || attribute->text() == nullptr) {
    SPRY_ASSIGN_OR_RETURN(AttributePath path, AttributePath::Parse(attribute));
    paths.push_back(std::move(path));
    return paths;
  }
  std::string_view rest = attribute->text()->bytes;
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    const Value part = Value::String(std::string(rest.substr(0, comma)));
    SPRY_ASSIGN_OR_RETURN(AttributePath path, AttributePath::Parse(&part));
    paths.push_back(std::move(path));
    more = comma != rest.npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return paths;
}

Result<Value> Sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0));
  SPRY_ASSIGN_OR_RETURN(const auto paths, ParsePaths(bound.GetUnlessNone(2)));
  SPRY_ASSIGN_OR_RETURN(std::vector<Value> items, runtime.ItemsOf(input));
  SPRY_ASSIGN_OR_RETURN(auto keyed,
                        KeyItems(runtime, std::move(items), paths, bound.IsTrueAt(1, false)));
  SPRY_RETURN_IF_ERROR(SortKeyed(runtime, keyed, bound.IsTrueAt(0, false)));
  std::vector<Value> sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return runtime.MakeList(std::move(sorted));
}

Result<Value> DictSort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0));
  if (input.dict() == nullptr) {
    return InvalidArgument(
        fmt::format("dictsort: expected a dict, found a value of type {}", input.TypeName()));
  }
  SPRY_ASSIGN_OR_RETURN(const std::string_view by, bound.TextAt(1, "key"));
  if (by != "key" && by != "value") {
    return InvalidArgument("dictsort: 'by' must be 'key' or 'value'");
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.dict()->entries()) {
    SPRY_ASSIGN_OR_RETURN(
        Value sort_key, WithoutCase(runtime, by == "key" ? key : value, bound.IsTrueAt(0, false)));
    keyed.push_back({{std::move(sort_key)}, Value::Of(SequenceKind::kTuple, {key, value})});
  }
  SPRY_RETURN_IF_ERROR(SortKeyed(runtime, keyed, bound.IsTrueAt(2, false)));
  std::vector<Value> sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return runtime.MakeList(std::move(sorted));
}

Result<Value> Unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("unique", arguments,
                                                               {"case_sensitive", "attribute"}, 0));
  SPRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.GetUnlessNone(1)));
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  Dict seen;
  std::vector<Value> unique;
  for (const Value& item : items) {
    SPRY_ASSIGN_OR_RETURN(const Value value, path.Of(runtime, item));
    SPRY_ASSIGN_OR_RETURN(Value key, WithoutCase(runtime, value, bound.IsTrueAt(0, false)));
    SPRY_RETURN_IF_ERROR(runtime.CheckKey(key));
    if (seen.Find(key) != nullptr) continue;
    seen.Set(std::move(key), Value::None());
    unique.push_back(item);
  }
  return runtime.MakeIterator(std::move(unique));
}

template <bool greatest>
Result<Value> Extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("min and max", arguments,
                                                               {"case_sensitive", "attribute"}, 0));
  SPRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.GetUnlessNone(1)));
  SPRY_ASSIGN_OR_RETURN(std::vector<Value> items, runtime.ItemsOf(input));
  if (items.empty()) return Value::Undefined("an empty sequence has no least or greatest item");
  SPRY_ASSIGN_OR_RETURN(auto keyed,
                        KeyItems(runtime, std::move(items), {path}, bound.IsTrueAt(0, false)));
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    const Value& candidate = keyed[i].keys[0];
    const Value& leader = keyed[best].keys[0];
    SPRY_ASSIGN_OR_RETURN(const bool better, greatest ? runtime.Less(leader, candidate)
                                                      : runtime.Less(candidate, leader));
    if (better) best = i;
  }
  return keyed[best].item;
}

// A pair that templates may also ask for its grouper and list.
class Group final : public Object {
 public:
  Group(Value grouper, Value list) : grouper_(std::move(grouper)), list_(std::move(list)) {}
  std::string_view type_name() const override { return "tuple"; }
  int depth() const override { return std::max(grouper_.depth(), list_.depth()) + 1; }
  Result<std::optional<Value>> Attribute(Runtime&, std::string_view name) override {
    if (name == "grouper") return std::optional<Value>(grouper_);
    if (name == "list") return std::optional<Value>(list_);
    return std::optional<Value>();
  }
  std::optional<std::vector<Value>> Items() const override {
    return std::vector<Value>{grouper_, list_};
  }

 private:
  Value grouper_;
  Value list_;
};

Result<Value> GroupBy(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  SPRY_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.GetUnlessNone(0)));
  const bool case_sensitive = bound.IsTrueAt(2, false);
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    SPRY_ASSIGN_OR_RETURN(const Value value, path.Of(runtime, item, bound.GetUnlessNone(1)));
    SPRY_ASSIGN_OR_RETURN(Value key, WithoutCase(runtime, value, case_sensitive));
    keyed.push_back({{std::move(key)}, item});
  }
  SPRY_RETURN_IF_ERROR(SortKeyed(runtime, keyed, /*reverse=*/false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < keyed.size(); ++end) {
      SPRY_ASSIGN_OR_RETURN(const bool equal,
                            runtime.Equal(keyed[end].keys[0], keyed[begin].keys[0]));
      if (!equal) break;
      members.push_back(keyed[end].item);
    }
    // Without case, a group is named as its first member has it.
    SPRY_ASSIGN_OR_RETURN(Value grouper, path.Of(runtime, members.front(), bound.GetUnlessNone(1)));
    SPRY_ASSIGN_OR_RETURN(Value list, runtime.MakeList(std::move(members)));
    groups.push_back(Value::Of(
        std::shared_ptr<Object>(std::make_shared<Group>(std::move(grouper), std::move(list)))));
    begin = end;
  }
  return runtime.MakeList(std::move(groups));
}

constexpr Filter kChoiceFilters[] = {
    {"dictsort", DictSort},
    {"groupby", GroupBy},
    {"map", MapItems},
    {"max", Extreme<true>},
    {"min", Extreme<false>},
    {"reject", Select<false, false>},
    {"rejectattr", Select<false, true>},
    {"select", Select<true, false>},
    {"selectattr", Select<true, true>},
    {"sort", Sort},
    {"unique", Unique},
};

}  // namespace

std::span<const Filter> ChoiceFilters() { return kChoiceFilters; }

}  // namespace spry::jinja
