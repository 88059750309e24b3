#include "text/json_parse.h"

#include <string>

namespace spry {
namespace {

constexpr size_t kMostDigits = 19;  // as many always fit 64 bits

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Whole numbers that may be too long, with an exponent.
std::string WithDoubles(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (in_string || !IsDigit(text[i])) {
      if (text[i] == '"') in_string = !in_string;
      i += in_string && text[i] == '\\' ? 2 : 1;
      out += text.substr(begin, i - begin);
      continue;
    }
    while (i < text.size() && IsDigit(text[i])) ++i;
    out += text.substr(begin, i - begin);
    const char before = begin == 0 ? ' ' : text[begin - 1];
    const char after = i == text.size() ? ' ' : text[i];
    const bool fraction = before == '.' || before == 'e' || before == 'E' || before == '+' ||
                          after == '.' || after == 'e' || after == 'E';
    if (i - begin > kMostDigits && !fraction) out += "e0";
  }
  return out;
}

}  // namespace

simdjson::error_code ParseJson(std::string_view text, simdjson::dom::parser& parser,
                               simdjson::dom::element& root) {
  const auto error = parser.parse(simdjson::padded_string(text)).get(root);
  if (error != simdjson::NUMBER_ERROR) return error;
  return parser.parse(WithDoubles(text)).get(root);
}

}  // namespace spry
