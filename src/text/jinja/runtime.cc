#include "text/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/characters.h"
#include "text/jinja/compare.h"
#include "text/jinja/limits.h"
#include "text/jinja/methods.h"
#include "text/jinja/repr.h"

namespace spry::jinja {
namespace {

// Where an index of Python's (negative: from the end) lies; nothing when outside.
std::optional<int64_t> Place(int64_t index, int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return {};
  return index;
}

Value NoSuch(const Value& value, const Value& key) {
  if (const Text* name = key.text()) {
    return Value::Undefined(
        fmt::format("'{}' is no attribute of a value of type {}", name->bytes, value.TypeName()));
  }
  return Value::Undefined(
      fmt::format("a value of type {} lacks the element that is asked for", value.TypeName()));
}

// Not the whole of it, of a template that asks for an attribute of a megabyte.
std::string Shortened(std::string_view name) { return std::string(name.substr(0, 100)); }

}  // namespace

Runtime::~Runtime() {
  for (const auto& space : namespaces_) space->attributes() = Dict();
}

Status Runtime::OutOfSteps() const {
  return InvalidArgument(
      fmt::format("the template takes more than the limit of {} steps", kMaxSteps));
}

Status Runtime::ChargeText(size_t bytes) {
  return Charge(static_cast<int64_t>(bytes) / kBytesPerStep + 1);
}

Status Runtime::ChargeCharacters(size_t bytes) {
  return Charge(static_cast<int64_t>(bytes) / kCharactersPerStep + 1);
}

Status Runtime::CheckText(size_t bytes) {
  if (bytes <= kMaxTextBytes) return {};
  return InvalidArgument(
      fmt::format("a text of {} bytes is over the limit of {}", bytes, kMaxTextBytes));
}

Status Runtime::CheckItems(size_t items) {
  if (items <= static_cast<size_t>(kMaxListItems)) return {};
  return InvalidArgument(
      fmt::format("a list of {} items is over the limit of {}", items, kMaxListItems));
}

Status Runtime::CheckKey(const Value& key) {
  SPRY_RETURN_IF_ERROR(Charge(key.weight()));
  if (IsHashable(key)) return {};
  return InvalidArgument(fmt::format("a value of type {} cannot be a key", key.TypeName()));
}

Status Runtime::ChargeComparison(const Value& a, const Value& b) {
  const auto is_view = [](const Value& value) {
    return value.sequence() != nullptr && !value.is_list() && !value.is_tuple();
  };
  // Of views each item is looked for among all of the other's.
  if (is_view(a) && is_view(b)) {
    SPRY_RETURN_IF_ERROR(Charge(static_cast<int64_t>(a.sequence()->items.size()) *
                                static_cast<int64_t>(b.sequence()->items.size())));
  }
  return Charge(std::min(a.weight(), b.weight()));
}

Result<bool> Runtime::Equal(const Value& a, const Value& b) {
  SPRY_RETURN_IF_ERROR(ChargeComparison(a, b));
  return AreEqual(a, b);
}

Result<bool> Runtime::Less(const Value& a, const Value& b) {
  SPRY_RETURN_IF_ERROR(ChargeComparison(a, b));
  return IsLess(a, b);
}

Result<bool> Runtime::LessOrEqual(const Value& a, const Value& b) {
  SPRY_RETURN_IF_ERROR(ChargeComparison(a, b));
  return IsLessOrEqual(a, b);
}

Status Runtime::CheckDepth(int depth) {
  if (depth <= kMaxValueDepth) return {};
  return InvalidArgument(fmt::format("a value nests deeper than the limit of {}", kMaxValueDepth));
}

Result<Value> Runtime::MakeText(std::string bytes, bool safe) {
  SPRY_RETURN_IF_ERROR(CheckText(bytes.size()));
  SPRY_RETURN_IF_ERROR(ChargeText(bytes.size()));
  return Value::String(std::move(bytes), safe);
}

Result<Value> Runtime::MakeSequence(SequenceKind kind, std::vector<Value> items) {
  SPRY_RETURN_IF_ERROR(CheckItems(items.size()));
  SPRY_RETURN_IF_ERROR(Charge(static_cast<int64_t>(items.size())));
  Value value = Value::Of(kind, std::move(items));
  SPRY_RETURN_IF_ERROR(CheckDepth(value.depth()));
  return value;
}

Result<Value> Runtime::MakeList(std::vector<Value> items) {
  return MakeSequence(SequenceKind::kList, std::move(items));
}

Result<Value> Runtime::MakeDict(Dict dict) {
  SPRY_RETURN_IF_ERROR(CheckItems(dict.entries().size()));
  SPRY_RETURN_IF_ERROR(Charge(static_cast<int64_t>(dict.entries().size())));
  SPRY_RETURN_IF_ERROR(CheckDepth(dict.depth()));
  return Value::Of(std::make_shared<const Dict>(std::move(dict)));
}

Result<Value> Runtime::MakeIterator(std::vector<Value> items) {
  SPRY_RETURN_IF_ERROR(Charge(static_cast<int64_t>(items.size())));
  auto iterator = std::make_shared<Iterator>(std::move(items));
  SPRY_RETURN_IF_ERROR(CheckDepth(iterator->depth()));
  return Value::Of(std::move(iterator));
}

std::shared_ptr<Namespace> Runtime::MakeNamespace() {
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

Result<std::vector<Value>> Runtime::ItemsOf(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const Sequence* sequence = value.sequence()) {
    items = sequence->items;
  } else if (const Dict* dict = value.dict()) {
    items.reserve(dict->entries().size());
    for (const auto& entry : dict->entries()) items.push_back(entry.first);
  } else if (const Range* range = value.range()) {
    items.reserve(static_cast<size_t>(range->size));
    for (int64_t i = 0; i < range->size; ++i) {
      items.push_back(Value::Int(range->At(i)));
    }
  } else if (const Text* text = value.text()) {
    SPRY_RETURN_IF_ERROR(CheckItems(static_cast<size_t>(text->length)));
    SPRY_RETURN_IF_ERROR(Charge(text->length));
    for (const std::string_view character : SplitCharacters(text->bytes)) {
      items.push_back(Value::String(std::string(character)));
    }
  } else if (Iterator* iterator = value.iterator()) {
    for (Value item; iterator->Next(item);) items.push_back(std::move(item));
  } else if (auto listed = value.object() == nullptr ? std::nullopt : value.object()->Items()) {
    items = *std::move(listed);
  } else {
    return InvalidArgument(fmt::format("expected something to go through, found a value of type {}",
                                       value.is_none() ? "None" : value.TypeName()));
  }
  SPRY_RETURN_IF_ERROR(Charge(static_cast<int64_t>(items.size())));
  return items;
}

Result<std::string> Runtime::ToText(const Value& value) {
  if (value.is_undefined()) return std::string();
  std::string text;
  if (value.text() != nullptr) {
    SPRY_RETURN_IF_ERROR(ChargeText(value.text()->bytes.size()));
    text = value.text()->bytes;
  } else {
    SPRY_RETURN_IF_ERROR(AppendRepr(*this, value, text));
  }
  SPRY_RETURN_IF_ERROR(CheckText(text.size()));
  return text;
}

Result<Value> Runtime::GetAttribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) return InvalidArgument(std::string(value.why()));
  if (name.starts_with("__")) {
    return Value::Undefined(fmt::format("'{}' is out of a template's reach", Shortened(name)));
  }
  if (Object* object = value.object()) {
    SPRY_ASSIGN_OR_RETURN(std::optional<Value> found, object->Attribute(*this, name));
    if (found) return *std::move(found);
  } else if (std::optional<Value> method = FindMethod(value, name)) {
    return *std::move(method);
  } else if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->Find(name)) return *found;
  }
  return NoSuch(value, Value::String(Shortened(name)));
}

Result<Value> Runtime::GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) return InvalidArgument(std::string(value.why()));
  if (const Dict* dict = value.dict()) {
    SPRY_RETURN_IF_ERROR(Charge(key.weight()));
    if (!IsHashable(key)) return NoSuch(value, key);
    if (const Value* found = dict->Find(key)) return *found;
  } else if (key.is_int()) {
    const int64_t index = key.as_int();
    const Sequence* sequence = value.sequence();
    if (value.is_list() || value.is_tuple()) {
      const auto place = Place(index, static_cast<int64_t>(sequence->items.size()));
      if (place) return sequence->items[static_cast<size_t>(*place)];
    } else if (const Range* range = value.range()) {
      const auto place = Place(index, range->size);
      if (place) return Value::Int(range->At(*place));
    } else if (const Text* text = value.text()) {
      const auto place = Place(index, text->length);
      if (!place) return NoSuch(value, key);
      if (text->ascii()) {
        return Value::String(text->bytes.substr(static_cast<size_t>(*place), 1), text->safe);
      }
      SPRY_RETURN_IF_ERROR(ChargeText(text->bytes.size()));
      const size_t begin = ByteOfCharacter(text->bytes, *place);
      const std::string_view rest = std::string_view(text->bytes).substr(begin);
      return Value::String(std::string(rest.substr(0, ByteOfCharacter(rest, 1))), text->safe);
    }
  }
  if (key.text() == nullptr || value.dict() != nullptr) {
    if (key.text() != nullptr && !key.text()->bytes.starts_with('_')) {
      if (std::optional<Value> method = FindMethod(value, key.text()->bytes)) return *method;
    }
    return NoSuch(value, key);
  }
  return GetAttribute(value, key.text()->bytes);
}

Result<Value> Runtime::Call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) return InvalidArgument(std::string(callee.why()));
  if (callee.object() == nullptr || !callee.object()->callable()) {
    return InvalidArgument(
        fmt::format("expected something to call, found a value of type {}", callee.TypeName()));
  }
  return callee.object()->Call(*this, std::move(arguments));
}

}  // namespace spry::jinja
