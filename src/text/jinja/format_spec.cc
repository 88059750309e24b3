#include "text/jinja/format_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/limits.h"
#include "text/jinja/repr.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Status ParseNumber(std::string_view& spec, int64_t& number) {
  number = 0;
  while (!spec.empty() && spec[0] >= '0' && spec[0] <= '9') {
    number = number * 10 + (spec[0] - '0');
    SPRY_RETURN_IF_ERROR(CheckFormatWidth(number));
    spec.remove_prefix(1);
  }
  return {};
}

bool Take(std::string_view& spec, char c) {
  if (spec.empty() || spec[0] != c) return false;
  spec.remove_prefix(1);
  return true;
}

// A number without its sign, in parts, so that zeros can go between them.
struct Digits {
  bool negative = false;
  std::string prefix;  // 0x
  std::string whole;
  std::string rest;  // fraction, exponent, percent sign
};

std::string InBase(uint64_t number, unsigned base, bool upper) {
  const std::string_view digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string text;
  do {
    text += digits[number % base];
    number /= base;
  } while (number != 0);
  std::ranges::reverse(text);
  return text;
}

Result<Digits> IntegerDigits(int64_t value, const FormatSpec& spec) {
  Digits digits;
  digits.negative = value < 0;
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n': digits.whole = InBase(size, 10, false); break;
    case 'b': digits.whole = InBase(size, 2, false); break;
    case 'o': digits.whole = InBase(size, 8, false); break;
    case 'x': digits.whole = InBase(size, 16, false); break;
    case 'X': digits.whole = InBase(size, 16, true); break;
    default:
      return InvalidArgument(fmt::format("format type '{}' does not go with an int", spec.type));
  }
  const bool has_prefix =
      spec.type == 'b' || spec.type == 'o' || spec.type == 'x' || spec.type == 'X';
  if (spec.alternate && has_prefix) digits.prefix = std::string("0") + spec.type;
  return digits;
}

std::string Printed(char type, int64_t precision, bool alternate, double value) {
  std::string conversion = alternate ? "%#.*" : "%.*";
  conversion += type;
  const int digits = static_cast<int>(precision);
  const int size = std::snprintf(nullptr, 0, conversion.c_str(), digits, value);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), conversion.c_str(), digits, value);
  text.pop_back();
  return text;
}

Result<Digits> FloatDigits(double value, const FormatSpec& spec) {
  std::string text;
  const double size = std::fabs(value);
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (!std::isfinite(value)) {
    text = std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    if (spec.type == '%') text += '%';
  } else if (spec.type == 0) {
    text = FloatRepr(size);
    if (spec.precision >= 0) {
      text = Printed('g', std::max<int64_t>(spec.precision, 1), spec.alternate, size);
      // Python's default form is not the type g in one point: it keeps a digit after the point.
      if (text.find_first_of(".e") == text.npos) text += ".0";
    }
  } else if (spec.type == '%') {
    text = Printed('f', precision, spec.alternate, size * 100) + '%';
  } else if (std::string_view("eEfFgGn").find(spec.type) != std::string_view::npos) {
    text = Printed(spec.type == 'n' ? 'g' : spec.type, precision, spec.alternate, size);
  } else {
    return InvalidArgument(fmt::format("format type '{}' does not go with a float", spec.type));
  }
  Digits digits;
  digits.negative = std::signbit(value) && !std::isnan(value);
  const size_t end = std::isfinite(value) ? text.find_first_not_of("0123456789") : 0;
  digits.whole = text.substr(0, end);
  if (end < text.size()) digits.rest = text.substr(end);
  return digits;
}

std::string Grouped(const std::string& digits, const FormatSpec& spec) {
  if (spec.grouping == 0) return digits;
  const bool fours = spec.type == 'b' || spec.type == 'o' || spec.type == 'x' || spec.type == 'X';
  const size_t every = fours ? 4 : 3;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += spec.grouping;
    out += digits[i];
  }
  return out;
}

std::string Padded(std::string_view head, std::string_view text, char align,
                   const FormatSpec& spec) {
  const int64_t missing = spec.width - CountCharacters(head) - CountCharacters(text);
  std::string left;
  std::string right;
  for (int64_t i = 0; i < missing; ++i) {
    const bool to_left = align == '>' || align == '=' || (align == '^' && i < missing / 2);
    (to_left ? left : right) += spec.fill;
  }
  if (align == '=') return fmt::format("{}{}{}", head, left, text);
  return fmt::format("{}{}{}{}", left, head, text, right);
}

std::string FormatDigits(Digits digits, const FormatSpec& spec) {
  std::string head = digits.negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  head += digits.prefix;
  const char align = spec.align == 0 ? '>' : spec.align;
  std::string whole = Grouped(digits.whole, spec);
  // Zeros in front of a grouped number are grouped too.
  if (spec.grouping != 0 && align == '=' && spec.fill == "0") {
    const size_t room = static_cast<size_t>(
        std::max<int64_t>(spec.width - static_cast<int64_t>(head.size() + digits.rest.size()), 0));
    while (whole.size() < room) {
      digits.whole.insert(0, 1, '0');
      whole = Grouped(digits.whole, spec);
    }
  }
  return Padded(head, whole + digits.rest, align, spec);
}

}  // namespace

Status CheckFormatWidth(int64_t width) {
  if (width <= kMaxFormatWidth) return {};
  return InvalidArgument(
      fmt::format("a width or precision of {} is over the limit of {}", width, kMaxFormatWidth));
}

Result<FormatSpec> ParseFormatSpec(std::string_view text) {
  FormatSpec spec;
  std::string_view rest = text;
  const size_t first = rest.empty() ? 0 : static_cast<size_t>(NextCharacter(rest).length);
  if (rest.size() > first && first > 0 && IsAlign(rest[first])) {
    spec.fill = rest.substr(0, first);
    spec.align = rest[first];
    rest.remove_prefix(first + 1);
  } else if (!rest.empty() && IsAlign(rest[0])) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-' || rest[0] == ' ')) {
    spec.sign = rest[0];
    rest.remove_prefix(1);
  }
  spec.alternate = Take(rest, '#');
  if (Take(rest, '0') && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  SPRY_RETURN_IF_ERROR(ParseNumber(rest, spec.width));
  if (!rest.empty() && (rest[0] == ',' || rest[0] == '_')) {
    spec.grouping = rest[0];
    rest.remove_prefix(1);
  }
  if (Take(rest, '.')) {
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') {
      return InvalidArgument("a format has a point without a precision");
    }
    SPRY_RETURN_IF_ERROR(ParseNumber(rest, spec.precision));
  }
  if (rest.size() == 1) {
    spec.type = rest[0];
  } else if (!rest.empty()) {
    return InvalidArgument(
        fmt::format("'{}' is no format; expected [[fill]align][sign][#][0][width][,][.precision]"
                    "[type]",
                    text.substr(0, 100)));
  }
  return spec;
}

Result<std::string> FormatValue(Runtime& runtime, const Value& value, const FormatSpec& spec) {
  SPRY_RETURN_IF_ERROR(runtime.Charge(1 + spec.width + std::max<int64_t>(spec.precision, 0)));
  if (value.is_number()) {
    if (spec.type == 'c' && value.is_int()) {
      if (value.as_int() < 0 || value.as_int() > 0x10FFFF) {
        return InvalidArgument("format type 'c': the number is no character");
      }
      std::string character;
      AppendUtf8(static_cast<char32_t>(value.as_int()), character);
      return Padded("", character, spec.align == 0 ? '<' : spec.align, spec);
    }
    const bool as_float =
        value.is_float() ||
        (spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
    if (!as_float && spec.precision >= 0) {
      return InvalidArgument("a format of an int has no precision");
    }
    SPRY_ASSIGN_OR_RETURN(Digits digits, as_float ? FloatDigits(value.as_double(), spec)
                                                  : IntegerDigits(value.as_int(), spec));
    return FormatDigits(std::move(digits), spec);
  }
  const Text* text = value.text();
  if (text == nullptr) {
    return InvalidArgument(fmt::format("a value of type {} takes no format", value.TypeName()));
  }
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.grouping != 0) {
    return InvalidArgument("a format for numbers is given a string");
  }
  std::string_view bytes = text->bytes;
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(bytes.size()));
  if (spec.precision >= 0) bytes = bytes.substr(0, ByteOfCharacter(bytes, spec.precision));
  return Padded("", bytes, spec.align == 0 ? '<' : spec.align, spec);
}

}  // namespace spry::jinja
