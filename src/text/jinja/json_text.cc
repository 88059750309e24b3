#include "text/jinja/json_text.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "text/jinja/characters.h"
#include "text/jinja/compare.h"
#include "text/jinja/limits.h"
#include "text/jinja/repr.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  Status Write(const Value& value) {
    SPRY_RETURN_IF_ERROR(runtime_.Charge(1));
    SPRY_RETURN_IF_ERROR(runtime_.CheckText(out_.size()));
    if (const Text* text = value.text()) return WriteText(text->bytes);
    if (value.is_none() || value.is_number()) {
      out_ += Scalar(value);
      return {};
    }
    if (const Dict* dict = value.dict()) return WriteDict(*dict);
    if (value.is_list() || value.is_tuple()) return WriteList(*value.sequence());
    return InvalidArgument(
        fmt::format("tojson: a value of type {} has no form in JSON{}", value.TypeName(),
                    value.is_undefined() ? fmt::format(" ({})", value.why()) : ""));
  }

  std::string Take() { return std::move(out_); }

 private:
  static std::string Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.as_bool() ? "true" : "false";
    if (value.is_int()) return fmt::format("{}", value.as_int());
    const double number = value.as_double();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(number);
  }

  void WriteUnit(uint32_t unit) { out_ += fmt::format("\\u{:04x}", unit); }

  void WriteCharacter(char32_t code, std::string_view bytes) {
    const auto number = static_cast<uint32_t>(code);
    switch (code) {
      case '"': out_ += "\\\""; return;
      case '\\': out_ += "\\\\"; return;
      case '\n': out_ += "\\n"; return;
      case '\r': out_ += "\\r"; return;
      case '\t': out_ += "\\t"; return;
      case '\b': out_ += "\\b"; return;
      case '\f': out_ += "\\f"; return;
      default: break;
    }
    if (number < 0x20 || (style_.ascii && number >= 0x7F && number < 0x10000)) {
      WriteUnit(number);
    } else if (style_.ascii && number >= 0x10000) {
      WriteUnit(0xD800 + ((number - 0x10000) >> 10));
      WriteUnit(0xDC00 + ((number - 0x10000) & 0x3FF));
    } else {
      out_ += bytes;
    }
  }

  Status WriteText(std::string_view text) {
    SPRY_RETURN_IF_ERROR(runtime_.ChargeCharacters(text.size()));
    out_ += '"';
    while (!text.empty()) {
      const Utf8Character character = NextCharacter(text);
      WriteCharacter(character.code, text.substr(0, character.length));
      text.remove_prefix(character.length);
    }
    out_ += '"';
    return runtime_.CheckText(out_.size());
  }

  Status NewLine() {
    if (!style_.indent) return {};
    out_ += '\n';
    SPRY_RETURN_IF_ERROR(runtime_.CheckText(out_.size() + style_.indent->size() * depth_));
    SPRY_RETURN_IF_ERROR(runtime_.ChargeText(style_.indent->size() * depth_));
    for (size_t i = 0; i < depth_; ++i) out_ += *style_.indent;
    return {};
  }

  Status WriteList(const Sequence& sequence) {
    if (sequence.items.empty()) {
      out_ += "[]";
      return {};
    }
    out_ += '[';
    ++depth_;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      SPRY_RETURN_IF_ERROR(NewLine());
      SPRY_RETURN_IF_ERROR(Write(sequence.items[i]));
    }
    --depth_;
    SPRY_RETURN_IF_ERROR(NewLine());
    out_ += ']';
    return {};
  }

  Result<std::string> KeyText(const Value& key) const {
    if (key.text() != nullptr) return key.text()->bytes;
    if (key.is_none() || key.is_number()) return Scalar(key);
    return InvalidArgument(
        fmt::format("tojson: a value of type {} is no key in JSON", key.TypeName()));
  }

  Status WriteDict(const Dict& dict) {
    if (dict.entries().empty()) {
      out_ += "{}";
      return {};
    }
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) SPRY_RETURN_IF_ERROR(SortByKey(entries));
    out_ += '{';
    ++depth_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      SPRY_RETURN_IF_ERROR(NewLine());
      SPRY_ASSIGN_OR_RETURN(const std::string key, KeyText(entries[i]->first));
      SPRY_RETURN_IF_ERROR(WriteText(key));
      out_ += style_.key_separator;
      SPRY_RETURN_IF_ERROR(Write(entries[i]->second));
    }
    --depth_;
    SPRY_RETURN_IF_ERROR(NewLine());
    out_ += '}';
    return {};
  }

  Status SortByKey(std::vector<const Dict::Entry*>& entries) {
    Status status;
    std::ranges::stable_sort(entries, [&](const auto* a, const auto* b) {
      if (!status.ok()) return false;
      const Result<bool> less = runtime_.Less(a->first, b->first);
      if (!less.ok()) status = less.status();
      return less.ok() && *less;
    });
    return status;
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
  size_t depth_ = 0;
};

// The parser has limited the depth.
Result<Value> FromJson(simdjson::dom::element json, std::string_view what) {
  using Type = simdjson::dom::element_type;
  switch (json.type()) {
    case Type::NULL_VALUE: return Value::None();
    case Type::BOOL: return Value::Bool(json.get_bool().value_unsafe());
    case Type::INT64: return Value::Int(json.get_int64().value_unsafe());
    case Type::DOUBLE: return Value::Float(json.get_double().value_unsafe());
    case Type::STRING: return Value::String(std::string(json.get_string().value_unsafe()));
    case Type::UINT64:
      return InvalidArgument(fmt::format("{}: {} does not fit in 64 bits with a sign", what,
                                         json.get_uint64().value_unsafe()));
    case Type::ARRAY: {
      std::vector<Value> items;
      const simdjson::dom::array array = json.get_array().value_unsafe();
      for (const simdjson::dom::element item : array) {
        SPRY_ASSIGN_OR_RETURN(Value value, FromJson(item, what));
        items.push_back(std::move(value));
      }
      return Value::Of(SequenceKind::kList, std::move(items));
    }
    case Type::OBJECT: {
      auto dict = std::make_shared<Dict>();
      const simdjson::dom::object object = json.get_object().value_unsafe();
      for (const auto member : object) {
        SPRY_ASSIGN_OR_RETURN(Value value, FromJson(member.value, what));
        dict->Set(member.key, std::move(value));
      }
      return Value::Of(std::shared_ptr<const Dict>(std::move(dict)));
    }
  }
  return Internal(fmt::format("{}: a kind of JSON value that is unknown", what));
}

}  // namespace

Result<std::string> WriteJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  SPRY_RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

Result<Value> ReadJson(std::string_view json, std::string_view what) {
  simdjson::dom::parser parser;
  // Two below the limit of values: lists go into lists of arguments.
  auto error = parser.allocate(std::max<size_t>(json.size(), 1), kMaxValueDepth - 2);
  simdjson::dom::element root;
  if (error == simdjson::SUCCESS) {
    error = parser.parse(json.data(), json.size(), /*realloc_if_needed=*/true).get(root);
  }
  if (error == simdjson::SUCCESS) return FromJson(root, what);
  return InvalidArgument(fmt::format("{} is not JSON: {}", what, simdjson::error_message(error)));
}

}  // namespace spry::jinja
