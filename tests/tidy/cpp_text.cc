#include "tests/tidy/cpp_text.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "tests/tidy/source_tree.h"

namespace spry::tidy {
namespace {

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The apostrophe in 1'000 is no literal: the word that it stands in begins with a digit.
bool IsDigitSeparator(std::string_view text, size_t at) {
  size_t begin = at;
  while (begin > 0 && (IsWordChar(text[begin - 1]) || text[begin - 1] == '\'')) --begin;
  return begin < at && std::isdigit(static_cast<unsigned char>(text[begin])) != 0;
}

size_t EndOfQuoted(std::string_view text, size_t open) {
  size_t at = open + 1;
  while (at < text.size() && text[at] != text[open] && text[at] != '\n') {
    at += text[at] == '\\' ? 2 : 1;
  }
  return std::min(at + 1, text.size());
}

size_t EndOfRawString(std::string_view text, size_t quote) {
  const size_t paren = text.find('(', quote);
  if (paren == std::string_view::npos) return text.size();
  const std::string close = ")" + std::string(text.substr(quote + 1, paren - quote - 1)) + "\"";
  const size_t end = text.find(close, paren);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

// One past the comment or literal that begins at `at`; `at` itself when none does.
size_t EndOfToken(std::string_view text, size_t at) {
  if (text.substr(at, 2) == "//") return std::min(text.find('\n', at), text.size());
  if (text.substr(at, 2) == "/*") return std::min(text.find("*/", at + 2), text.size() - 2) + 2;
  if (text[at] == '"') {
    const bool raw = at > 0 && text[at - 1] == 'R';
    return raw ? EndOfRawString(text, at) : EndOfQuoted(text, at);
  }
  if (text[at] == '\'' && !IsDigitSeparator(text, at)) return EndOfQuoted(text, at);
  return at;
}

void Fill(std::string& out, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (out[i] != '\n') out[i] = ' ';
  }
}

void BlankDirectives(std::string& code) {
  bool continued = false;
  size_t begin = 0;
  while (begin < code.size()) {
    const size_t end = std::min(code.find('\n', begin), code.size());
    const size_t first = code.find_first_not_of(" \t", begin);
    if (continued || (first < end && code[first] == '#')) {
      continued = end > begin && code[end - 1] == '\\';
      Fill(code, begin, end);
    }
    begin = end + 1;
  }
}

size_t SkipSpace(std::string_view code, size_t at) {
  while (at < code.size() && std::isspace(static_cast<unsigned char>(code[at])) != 0) ++at;
  return at;
}

// Drops words that may stand before a declaration and say nothing about what it declares.
size_t SkipPrefixes(std::string_view code, size_t at, size_t end) {
  static const std::regex prefix(
      R"(^(public:|private:|protected:|template\s*<>|inline\b|export\b))");
  for (;;) {
    at = std::min(SkipSpace(code, at), end);
    std::cmatch match;
    const char* rest = code.data() + at;
    if (!std::regex_search(rest, code.data() + end, match, prefix)) return at;
    at += match.length();
  }
}

// Walks declarations; a function's body is skipped, the inside of a namespace, a class or a list of
// values (where a lambda may be) is entered.
class FunctionScanner {
 public:
  explicit FunctionScanner(std::string_view code) : code_(code) {}

  FunctionScan Run() {
    at_ = 0;
    Declarations();
    // A '}' that closes nothing ends the walk early.
    if (at_ < code_.size()) scan_.balanced = false;
    return std::move(scan_);
  }

 private:
  void Declarations() {
    size_t head = at_;
    while (at_ < code_.size() && code_[at_] != '}') {
      const char c = code_[at_];
      if (c == '(') {
        at_ = EndOfPair(at_, '(', ')');
      } else if (c == '{') {
        head = Braces(head);
      } else {
        ++at_;
        if (c == ';') head = at_;
      }
    }
  }

  // Handles the '{' at at_ after the declaration that began at `head`; returns where the next
  // begins.
  size_t Braces(size_t head) {
    const size_t open = at_;
    const size_t end = EndOfPair(open, '{', '}');
    const size_t begin = SkipPrefixes(code_, head, open);
    const std::string_view text = code_.substr(begin, open - begin);
    const size_t last = text.find_last_not_of(" \n\t");
    const bool is_value =
        last != std::string_view::npos && (text[last] == '=' || text[last] == ',');
    if (text.find('(') == std::string_view::npos || is_value || IsScope(text)) {
      ++at_;
      Declarations();
      at_ = end;
      return end;
    }
    at_ = end;
    // In a constructor's list of initialisers `a_{1}` is followed by the next one or by the body.
    const size_t next = SkipSpace(code_, end);
    if (next < code_.size() && (code_[next] == ',' || code_[next] == '{')) return head;
    Record(begin, text, end);
    return end;
  }

  static bool IsScope(std::string_view text) {
    static const std::regex scope(
        R"(^(template\s*<[^;{}]*>\s*)?(namespace|class|struct|union|enum)\b)");
    static const std::regex linkage(R"(^extern\s*""\s*$)");
    return std::regex_search(text.begin(), text.end(), scope) ||
           std::regex_search(text.begin(), text.end(), linkage);
  }

  size_t EndOfPair(size_t open, char opening, char closing) {
    int depth = 0;
    for (size_t i = open; i < code_.size(); ++i) {
      if (code_[i] == opening) ++depth;
      if (code_[i] == closing && --depth == 0) return i + 1;
    }
    scan_.balanced = false;
    return code_.size();
  }

  int LineOf(size_t offset) const {
    return 1 + static_cast<int>(std::count(code_.begin(), code_.begin() + offset, '\n'));
  }

  void Record(size_t begin, std::string_view text, size_t end) {
    std::string head;
    for (char c : text) {
      const bool is_space = std::isspace(static_cast<unsigned char>(c)) != 0;
      if (!is_space) head += c;
      if (is_space && !head.empty() && head.back() != ' ') head += ' ';
    }
    if (head.ends_with(' ')) head.pop_back();
    const int first_line = LineOf(begin);
    scan_.functions.push_back({head, first_line, LineOf(end - 1) - first_line + 1});
  }

  std::string_view code_;
  size_t at_ = 0;
  FunctionScan scan_;
};

}  // namespace

std::string Blanked(std::string_view text, Blank what) {
  std::string out(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = EndOfToken(text, at);
    if (end == at) {
      ++at;
      continue;
    }
    if (text[at] == '/') {
      Fill(out, at, end);
    } else if (what == Blank::kCommentsAndLiterals && end - at >= 2) {
      Fill(out, at + 1, end - 1);
    }
    at = end;
  }
  return out;
}

std::vector<Include> Includes(std::string_view text) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  const std::string code = Blanked(text, Blank::kComments);
  std::vector<Include> includes;
  int line = 0;
  for (std::string_view code_line : Lines(code)) {
    ++line;
    std::cmatch match;
    if (std::regex_search(code_line.begin(), code_line.end(), match, include)) {
      includes.push_back({match[2].str(), line, match[1].str() == "\""});
    }
  }
  return includes;
}

FunctionScan Functions(std::string_view text) {
  std::string code = Blanked(text, Blank::kCommentsAndLiterals);
  BlankDirectives(code);
  return FunctionScanner(code).Run();
}

}  // namespace spry::tidy
