#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "text/jinja/characters.h"
#include "text/jinja/text_literal.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameCharacter(char32_t code) { return code == '_' || IsAlphabetic(code) || IsNumeric(code); }

std::string NormalizedLineEnds(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) SPRY_RETURN_IF_ERROR(LexData());
    Push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }

  void Push(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  void Advance(size_t bytes) {
    const std::string_view passed = source_.substr(at_, bytes);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    if (!passed.empty()) line_start_ = passed.back() == '\n';
    at_ += bytes;
  }

  static size_t SpaceLength(std::string_view text) {
    return text.size() - Strip(text, Sides::kLeft).size();
  }

  // Text up to a tag, less what the tag takes from it. `sign` is that of the tag.
  std::string_view TextBefore(std::string_view text, char sign, bool lstrip) const {
    if (sign == '-') return Strip(text, Sides::kRight);
    if (sign == '+' || !lstrip) return text;
    const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line_begin == 0 && !line_start_) return text;
    const bool blank = Strip(text.substr(line_begin), Sides::kLeft).empty();
    return blank ? text.substr(0, line_begin) : text;
  }

  static char SignAt(std::string_view text, size_t at) {
    return at < text.size() && (text[at] == '-' || text[at] == '+') ? text[at] : '\0';
  }

  Status LexData() {
    size_t begin = 0;
    while ((begin = rest().find('{', begin)) != std::string_view::npos) {
      const char next = begin + 1 < rest().size() ? rest()[begin + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++begin;
    }
    if (begin == std::string_view::npos) {
      Push(TokenKind::kData, std::string(rest()));
      Advance(rest().size());
      return {};
    }
    const std::string_view text = rest().substr(0, begin);
    const char tag = rest()[begin + 1];
    const char sign = SignAt(rest(), begin + 2);
    const std::string_view kept = TextBefore(text, sign, /*lstrip=*/tag != '{');
    if (!kept.empty()) Push(TokenKind::kData, std::string(kept));
    Advance(begin);
    if (tag == '%' && LexRawBegin()) return LexRaw();
    Advance(sign == '\0' ? 2 : 3);
    if (tag == '#') return LexComment();
    Push(tag == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    return LexTag(tag == '{' ? '}' : '%');
  }

  Status LexComment() {
    const size_t end = rest().find("#}");
    if (end == std::string_view::npos) return ErrorAt(line_, "a comment lacks its '#}'");
    const char sign = end == 0 ? '\0' : SignAt(rest(), end - 1);
    Advance(end + 2);
    AfterTag(sign, /*trim=*/true);
    return {};
  }

  // After a tag: `-` takes all white space, otherwise a block takes one line end.
  void AfterTag(char sign, bool trim) {
    if (sign == '-') {
      Advance(SpaceLength(rest()));
    } else if (trim && sign != '+' && rest().starts_with('\n')) {
      Advance(1);
    }
  }

  // Passes "{% word %}" with its signs and spaces at the start of `text`; its length, or nothing.
  static std::optional<size_t> WordTag(std::string_view text, std::string_view word) {
    size_t at = 2;
    if (SignAt(text, at) != '\0') ++at;
    at += SpaceLength(text.substr(std::min(at, text.size())));
    if (!text.substr(std::min(at, text.size())).starts_with(word)) return {};
    at += word.size();
    at += SpaceLength(text.substr(at));
    return at;
  }

  bool LexRawBegin() {
    const auto length = WordTag(rest(), "raw");
    if (!length) return false;
    const std::string_view end = rest().substr(*length);
    const bool strips = end.starts_with("-%}");
    if (!strips && !end.starts_with("%}")) return false;
    Advance(*length + (strips ? 3 : 2));
    AfterTag(strips ? '-' : '\0', /*trim=*/false);
    return true;
  }

  Status LexRaw() {
    for (size_t at = 0; (at = rest().find("{%", at)) != std::string_view::npos; ++at) {
      const std::string_view tag = rest().substr(at);
      const auto length = WordTag(tag, "endraw");
      if (!length) continue;
      const char sign = SignAt(tag, *length);
      if (!tag.substr(*length + (sign == '\0' ? 0 : 1)).starts_with("%}")) continue;
      const std::string_view kept =
          TextBefore(rest().substr(0, at), SignAt(tag, 2), /*lstrip=*/true);
      if (!kept.empty()) Push(TokenKind::kData, std::string(kept));
      Advance(at + *length + (sign == '\0' ? 2 : 3));
      AfterTag(sign, /*trim=*/true);
      return {};
    }
    return ErrorAt(line_, "a raw block lacks its 'endraw'");
  }

  // The inside of {{ }} or {% %}; `closing` is the first character of its end.
  Status LexTag(char closing) {
    const std::string_view end = closing == '}' ? "}}" : "%}";
    while (true) {
      if (at_ >= source_.size()) {
        return ErrorAt(line_, fmt::format("the template ends inside a tag; expected '{}'", end));
      }
      if (brackets_.empty() && EndTag(closing, end)) return {};
      const size_t space = SpaceLength(rest());
      if (space > 0) {
        Advance(space);
      } else {
        SPRY_RETURN_IF_ERROR(LexToken());
      }
    }
  }

  bool EndTag(char closing, std::string_view end) {
    char sign = SignAt(rest(), 0);
    if (sign == '+' && closing == '}') sign = '\0';
    if (!rest().substr(sign == '\0' ? 0 : 1).starts_with(end)) return false;
    Push(closing == '}' ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, std::string(end));
    Advance(sign == '\0' ? 2 : 3);
    AfterTag(sign, /*trim=*/closing == '%');
    return true;
  }

  Status LexToken() {
    const char c = rest()[0];
    if (IsAsciiDigit(c)) return LexNumber();
    if (c == '"' || c == '\'') return LexText(c);
    const size_t name = NameLength();
    if (name > 0) {
      Push(TokenKind::kName, std::string(rest().substr(0, name)));
      Advance(name);
      return {};
    }
    for (const std::string_view op : kOperators) {
      if (!rest().starts_with(op)) continue;
      SPRY_RETURN_IF_ERROR(Balance(op));
      Push(TokenKind::kOperator, std::string(op));
      Advance(op.size());
      return {};
    }
    const size_t length = DecodeUtf8(rest()).length;
    return ErrorAt(line_, fmt::format("'{}' has no meaning in a tag", rest().substr(0, length)));
  }

  size_t NameLength() const {
    size_t at = 0;
    while (at_ + at < source_.size()) {
      const Utf8Character character = DecodeUtf8(rest().substr(at));
      if (!character.valid || !IsNameCharacter(character.code)) break;
      at += static_cast<size_t>(character.length);
    }
    return at;
  }

  Status Balance(std::string_view op) {
    const size_t opening = std::string_view("([{").find(op);
    if (opening != std::string_view::npos) brackets_ += ")]}"[opening];
    if (std::string_view(")]}").find(op) == std::string_view::npos) return {};
    if (brackets_.empty()) return ErrorAt(line_, fmt::format("'{}' closes nothing", op));
    if (brackets_.back() != op[0]) {
      return ErrorAt(line_, fmt::format("found '{}', expected '{}'", op, brackets_.back()));
    }
    brackets_.pop_back();
    return {};
  }

  // Digits with single underscores between them; 0 when there are none.
  size_t DigitsLength(size_t at) const {
    const size_t begin = at;
    const auto digit = [&](size_t i) { return i < rest().size() && IsAsciiDigit(rest()[i]); };
    while (digit(at))
      at += at + 1 < rest().size() && rest()[at + 1] == '_' && digit(at + 2) ? 2 : 1;
    return at - begin;
  }

  // The length of a float here, 0 when there is none: digits and a fraction, an exponent, or both.
  size_t FloatLength() const {
    // After a point it is an index: a.0.1
    if (at_ > 0 && source_[at_ - 1] == '.') return 0;
    const size_t whole = DigitsLength(0);
    size_t at = whole;
    if (at < rest().size() && rest()[at] == '.' && DigitsLength(at + 1) > 0) {
      at += 1 + DigitsLength(at + 1);
    }
    if (at < rest().size() && (rest()[at] | 0x20) == 'e') {
      const size_t sign = SignAt(rest(), at + 1) == '\0' ? 0 : 1;
      const size_t exponent = DigitsLength(at + 1 + sign);
      if (exponent > 0) at += 1 + sign + exponent;
    }
    return at == whole ? 0 : at;
  }

  Status LexNumber() {
    const size_t float_length = FloatLength();
    size_t length = float_length;
    int base = 10;
    if (float_length == 0) {
      const char letter = rest().size() > 1 ? static_cast<char>(rest()[1] | 0x20) : '\0';
      if (rest()[0] == '0') base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      length = base == 10 ? DigitsLength(0) : 2;
      while (base != 10 && length < rest().size() &&
             (rest()[length] == '_' || isxdigit(static_cast<uint8_t>(rest()[length])))) {
        ++length;
      }
    }
    std::string digits(rest().substr(0, length));
    std::erase(digits, '_');
    const size_t skipped = base == 10 ? 0 : 2;
    const char* const end = digits.data() + digits.size();
    Token token{.text = digits, .line = line_};
    std::from_chars_result result{};
    if (float_length > 0) {
      token.kind = TokenKind::kFloat;
      result = std::from_chars(digits.data(), end, token.number);
    } else {
      token.kind = TokenKind::kInteger;
      // Of several digits the first is not 0, except that all are.
      if (base == 10 && digits[0] == '0') digits.erase(0, digits.find_first_not_of('0'));
      if (digits.empty()) digits = "0";
      result = std::from_chars(digits.data() + skipped, digits.data() + digits.size(),
                               token.integer, base);
      if (result.ptr != digits.data() + digits.size()) result.ec = std::errc::invalid_argument;
    }
    if (result.ec != std::errc()) {
      return ErrorAt(
          line_, fmt::format("the number {} cannot be held in 64 bits", token.text.substr(0, 100)));
    }
    tokens_.push_back(std::move(token));
    Advance(length);
    return {};
  }

  Status LexText(char quote) {
    size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size()) return ErrorAt(line_, "a string lacks its closing quote");
    auto text = UnescapeText(rest().substr(1, end - 1));
    if (!text.ok()) return ErrorAt(line_, text.status().message());
    Push(TokenKind::kText, *std::move(text));
    Advance(end + 1);
    return {};
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::string brackets_;  // the closing ones that are awaited
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  const std::string normalized = NormalizedLineEnds(source);
  return Lexer(normalized).Run();
}

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd: return "the end of the template";
    case TokenKind::kData: return "text";
    case TokenKind::kVariableBegin: return "'{{'";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kText: return "a string";
    default: return fmt::format("'{}'", token.text.substr(0, 100));
  }
}

Status ErrorAt(int line, std::string_view message) {
  return InvalidArgument(fmt::format("chat template, line {}: {}", line, message));
}

}  // namespace spry::jinja
