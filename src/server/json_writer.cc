#include "server/json_writer.h"

#include <cmath>

#include "text/utf8.h"

namespace spry {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\';
}

void AppendEscape(char c, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  out += "\\u00";
  out += kHex[static_cast<unsigned char>(c) >> 4];
  out += kHex[c & 15];
}

}  // namespace

void AppendEscaped(std::string_view text, std::string& out) {
  size_t i = 0;
  while (i < text.size()) {
    const size_t begin = i;
    while (i < text.size() && IsPlain(text[i])) ++i;
    out.append(text.substr(begin, i - begin));
    if (i == text.size()) return;
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      AppendEscape(text[i++], out);
      continue;
    }
    const Utf8Character character = DecodeUtf8(text.substr(i));
    out.append(character.valid ? text.substr(i, character.length) : kReplacement);
    i += character.length;
  }
}

// A value or key follows another one unless something has just been opened or named.
void JsonWriter::Separate() {
  if (out_.empty()) return;
  switch (out_.back()) {
    case '{':
    case '[':
    case ':':
    case ',':
    case ' ':  // of "data: "
      return;
    default: out_ += ',';
  }
}

void JsonWriter::Key(std::string_view key) {
  Separate();
  out_ += '"';
  out_ += key;
  out_ += "\":";
}

void JsonWriter::String(std::string_view escaped, std::string_view text) {
  Separate();
  out_ += '"';
  out_ += escaped;
  AppendEscaped(text, out_);
  out_ += '"';
}

void JsonWriter::Integer(int64_t value) {
  Separate();
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  out_.append(digits, end.ptr);
}

template <typename Float>
void JsonWriter::Floating(Float value) {
  if (!std::isfinite(value)) return Null();
  Separate();
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  const std::string_view text(digits, end.ptr - digits);
  out_ += text;
  if (text.find_first_of(".e") == std::string_view::npos) out_ += ".0";
}
template void JsonWriter::Floating(double);
template void JsonWriter::Floating(float);

void JsonWriter::Bool(bool value) { Raw(value ? "true" : "false"); }

void JsonWriter::Null() { Raw("null"); }

void JsonWriter::Raw(std::string_view json) {
  Separate();
  out_ += json;
}

}  // namespace spry
