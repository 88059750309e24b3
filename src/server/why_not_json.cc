#include "server/why_not_json.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace spry {
namespace {

namespace json = boost::json;

// The first byte that is no UTF-8; the size when all is.
size_t EndOfUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Character next = DecodeUtf8(text.substr(at));
    if (!next.valid) break;
    at += next.length;
  }
  return at;
}

// Whether `text` ends in an escape like \ud800, which needs another of its kind behind it.
bool EndsInHighSurrogate(std::string_view text) {
  constexpr size_t kEscapeBytes = 6;
  if (text.size() < kEscapeBytes) return false;
  const std::string_view escape = text.substr(text.size() - kEscapeBytes);
  const auto is_in = [](char c, std::string_view set) { return set.find(c) != set.npos; };
  return escape.starts_with("\\u") && is_in(escape[2], "dD") && is_in(escape[3], "89abAB");
}

}  // namespace

std::string WhyNotJson(std::string_view text, size_t at, const json::error_code& error) {
  if (text.empty()) return "it is empty";
  if (const size_t broken = EndOfUtf8(text); broken < text.size() && broken <= at) {
    return fmt::format("byte {} is no UTF-8", broken);
  }
  if (error == json::error::illegal_leading_surrogate ||
      error == json::error::illegal_trailing_surrogate || EndsInHighSurrogate(text.substr(0, at)) ||
      (at > 0 && EndsInHighSurrogate(text.substr(0, at - 1)))) {
    return fmt::format("the \\u escape before byte {} is half of a surrogate pair", at);
  }
  if (error == json::error::incomplete) return fmt::format("it ends too early, at byte {}", at);
  return fmt::format("{} at byte {}", error.message(), at);
}

Result<json::value> ParseJson(std::string_view text) {
  json::error_code error;
  json::parser parser;
  const size_t read = parser.write(text.data(), text.size(), error);
  if (error) return InvalidArgument("not valid JSON: " + WhyNotJson(text, read, error));
  return parser.release();
}

}  // namespace spry
