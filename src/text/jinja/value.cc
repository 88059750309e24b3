#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/compare.h"
#include "text/jinja/limits.h"

namespace spry::jinja {
namespace {

// Below this many entries looking at all of them is faster.
constexpr size_t kIndexedEntries = 12;

constexpr int64_t kMaxWeight = int64_t{1} << 60;

int64_t WeightOf(const std::vector<Value>& items) {
  int64_t weight = 1;
  for (const Value& item : items) weight = std::min(weight + item.weight(), kMaxWeight);
  return weight;
}

int DepthOf(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

}  // namespace

Value Value::Undefined(std::string why) {
  return Value(Data(UndefinedType{std::make_shared<const std::string>(std::move(why))}));
}

Value Value::String(std::string bytes, bool safe) {
  const int64_t length = CountCharacters(bytes);
  return Value(Data(std::make_shared<const Text>(Text{std::move(bytes), length, safe})));
}

Value Value::Of(Range range) { return Value(Data(std::make_shared<const Range>(range))); }

Value Value::Of(SequenceKind kind, std::vector<Value> items) {
  Sequence sequence{.kind = kind, .depth = DepthOf(items), .weight = WeightOf(items)};
  sequence.items = std::move(items);
  return Value(Data(std::make_shared<const Sequence>(std::move(sequence))));
}

Value Value::Of(std::shared_ptr<const Dict> dict) { return Value(Data(std::move(dict))); }
Value Value::Of(std::shared_ptr<Iterator> iterator) { return Value(Data(std::move(iterator))); }
Value Value::Of(std::shared_ptr<Object> object) { return Value(Data(std::move(object))); }

std::string_view Value::why() const {
  const auto& why = std::get<UndefinedType>(data_).why;
  return why == nullptr ? std::string_view("a value is undefined") : *why;
}

int64_t Value::as_int() const {
  return is_bool() ? static_cast<int64_t>(as_bool()) : std::get<int64_t>(data_);
}

double Value::as_double() const {
  return is_float() ? std::get<double>(data_) : static_cast<double>(as_int());
}

std::string Value::TypeName() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (text() != nullptr) return "str";
  if (range() != nullptr) return "range";
  if (dict() != nullptr) return "dict";
  if (iterator() != nullptr) return "generator";
  if (object() != nullptr) return std::string(object()->type_name());
  switch (sequence()->kind) {
    case SequenceKind::kList: return "list";
    case SequenceKind::kTuple: return "tuple";
    case SequenceKind::kKeys: return "dict_keys";
    case SequenceKind::kValues: return "dict_values";
    case SequenceKind::kItems: return "dict_items";
  }
  return "list";
}

int Value::depth() const {
  if (sequence() != nullptr) return sequence()->depth;
  if (dict() != nullptr) return dict()->depth();
  if (iterator() != nullptr) return iterator()->depth();
  return object() != nullptr ? object()->depth() : 0;
}

int64_t Value::weight() const {
  if (text() != nullptr) return static_cast<int64_t>(text()->bytes.size()) / kBytesPerStep + 1;
  if (sequence() != nullptr) return sequence()->weight;
  return dict() != nullptr ? dict()->weight() : 1;
}

bool Value::IsSame(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined()) return false;
  if (is_none()) return true;
  if (is_bool()) return as_bool() == other.as_bool();
  if (is_int()) return as_int() == other.as_int();
  if (is_float()) return false;
  if (text() != nullptr) return text() == other.text() || text()->bytes == other.text()->bytes;
  return sequence() == other.sequence() && dict() == other.dict() && range() == other.range() &&
         iterator() == other.iterator() && object() == other.object();
}

bool Dict::KeyLess::operator()(const Value& a, const Value& b) const { return IsKeyBefore(a, b); }

size_t Dict::IndexOf(const Value& key) const {
  if (entries_.size() < kIndexedEntries) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (AreEqual(entries_[i].first, key)) return i;
    }
    return kNone;
  }
  const auto found = index_.find(key);
  return found == index_.end() ? kNone : found->second;
}

void Dict::Append(Value key, Value value) {
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() < kIndexedEntries) return;
  if (entries_.size() > kIndexedEntries) {
    index_.emplace(entries_.back().first, entries_.size() - 1);
    return;
  }
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
}

void Dict::Set(Value key, Value value) {
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  weight_ = std::min(weight_ + key.weight() + value.weight(), kMaxWeight);
  const size_t at = IndexOf(key);
  if (at != kNone) {
    entries_[at].second = std::move(value);
  } else {
    Append(std::move(key), std::move(value));
  }
}

void Dict::Set(std::string_view key, Value value) {
  Set(Value::String(std::string(key)), std::move(value));
}

const Value* Dict::Find(const Value& key) const {
  const size_t at = IndexOf(key);
  return at == kNone ? nullptr : &entries_[at].second;
}

const Value* Dict::Find(std::string_view key) const {
  if (entries_.size() >= kIndexedEntries) return Find(Value::String(std::string(key)));
  for (const Entry& entry : entries_) {
    const Text* text = entry.first.text();
    if (text != nullptr && text->bytes == key) return &entry.second;
  }
  return nullptr;
}

Iterator::Iterator(std::vector<Value> items) : items_(std::move(items)), depth_(DepthOf(items_)) {}

std::optional<std::vector<Value>> Object::Items() const { return {}; }

Result<Value> Object::Call(Runtime&, Arguments) {
  return InvalidArgument(fmt::format("a {} cannot be called", type_name()));
}

Result<std::optional<Value>> Object::Attribute(Runtime&, std::string_view) {
  return std::optional<Value>();
}

Result<std::optional<Value>> Namespace::Attribute(Runtime&, std::string_view name) {
  const Value* found = attributes_.Find(name);
  return found == nullptr ? std::optional<Value>() : *found;
}

}  // namespace spry::jinja
