#include "text/jinja/repr.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/characters.h"
#include "text/jinja/runtime.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

void AppendEscaped(char32_t code, std::string& out) {
  switch (code) {
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  const auto number = static_cast<uint32_t>(code);
  if (number < 0x100) {
    out += fmt::format("\\x{:02x}", number);
  } else if (number < 0x10000) {
    out += fmt::format("\\u{:04x}", number);
  } else {
    out += fmt::format("\\U{:08x}", number);
  }
}

class Printer {
 public:
  Printer(Runtime& runtime, std::string& out) : runtime_(runtime), out_(out) {}

  Status Print(const Value& value) {
    // Namespaces may hold themselves.
    SPRY_RETURN_IF_ERROR(runtime_.CheckDepth(depth_));
    SPRY_RETURN_IF_ERROR(runtime_.Charge(1));
    SPRY_RETURN_IF_ERROR(runtime_.CheckText(out_.size()));
    if (value.is_undefined()) {
      out_ += "Undefined";
    } else if (value.is_none()) {
      out_ += "None";
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "True" : "False";
    } else if (value.is_int()) {
      out_ += fmt::format("{}", value.as_int());
    } else if (value.is_float()) {
      out_ += FloatRepr(value.as_double());
    } else if (value.text() != nullptr) {
      SPRY_RETURN_IF_ERROR(runtime_.ChargeCharacters(value.text()->bytes.size()));
      if (value.text()->safe) out_ += "Markup(";
      AppendTextRepr(value.text()->bytes, out_);
      if (value.text()->safe) out_ += ')';
    } else {
      ++depth_;
      SPRY_RETURN_IF_ERROR(PrintContainer(value));
      --depth_;
    }
    return {};
  }

 private:
  Status PrintContainer(const Value& value) {
    if (const Dict* dict = value.dict()) return PrintDict(*dict);
    if (const Sequence* sequence = value.sequence()) return PrintSequence(value, *sequence);
    if (const Range* range = value.range()) {
      out_ += fmt::format("range({}, {}", range->start, range->stop);
      out_ += range->step == 1 ? ")" : fmt::format(", {})", range->step);
      return {};
    }
    auto* space = dynamic_cast<Namespace*>(value.object());
    if (space == nullptr) {
      out_ += fmt::format("<{} object>", value.TypeName());
      return {};
    }
    out_ += "<Namespace ";
    SPRY_RETURN_IF_ERROR(PrintDict(space->attributes()));
    out_ += '>';
    return {};
  }

  Status PrintDict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      SPRY_RETURN_IF_ERROR(Print(key));
      out_ += ": ";
      SPRY_RETURN_IF_ERROR(Print(item));
    }
    out_ += '}';
    return {};
  }

  Status PrintSequence(const Value& value, const Sequence& sequence) {
    const bool tuple = sequence.kind == SequenceKind::kTuple;
    const bool view = !tuple && sequence.kind != SequenceKind::kList;
    if (view) out_ += value.TypeName() + '(';
    out_ += tuple ? '(' : '[';
    bool first = true;
    for (const Value& item : sequence.items) {
      if (!first) out_ += ", ";
      first = false;
      SPRY_RETURN_IF_ERROR(Print(item));
    }
    if (tuple && sequence.items.size() == 1) out_ += ',';
    out_ += tuple ? ')' : ']';
    if (view) out_ += ')';
    return {};
  }

  Runtime& runtime_;
  std::string& out_;
  int depth_ = 0;
};

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  // The shortest digits, which both forms share.
  auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return text;
  end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  text.assign(buffer, end);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

void AppendTextRepr(std::string_view text, std::string& out) {
  const bool doubled = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = doubled ? '"' : '\'';
  out += quote;
  while (!text.empty()) {
    const Utf8Character character = NextCharacter(text);
    if (character.code == static_cast<char32_t>(quote) || character.code == '\\') out += '\\';
    if (IsPrintable(character.code)) {
      out += text.substr(0, character.length);
    } else {
      AppendEscaped(character.code, out);
    }
    text.remove_prefix(character.length);
  }
  out += quote;
}

Status AppendRepr(Runtime& runtime, const Value& value, std::string& out) {
  return Printer(runtime, out).Print(value);
}

}  // namespace spry::jinja
