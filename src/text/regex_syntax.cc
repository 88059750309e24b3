#include "text/regex_syntax.h"

#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "text/unicode_tables.h"

namespace spry {
namespace {

constexpr std::string_view kSpaces = R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a})"
                                     R"(\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
constexpr int kMaxNesting = 32;  // of classes; more is no pattern that anybody wrote

std::string WordClass() {
  // The superscripts and fractions of Latin-1 are word characters to Oniguruma; others are not.
  return CategoryClass("Alphabetic") + CategoryClass("M") + CategoryClass("Nd") +
         CategoryClass("Pc") + R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> Run() {
    while (!rest_.empty()) SPRY_RETURN_IF_ERROR(Element());
    return std::move(out_);
  }

 private:
  Status Element() {
    switch (rest_[0]) {
      case '\\': return Escape();
      case '[': {
        StartAtom();
        SPRY_ASSIGN_OR_RETURN(const std::string bracket, Bracket(0));
        out_ += bracket;
        return {};
      }
      case '(': return OpenGroup();
      case ')':
        out_ += Take(1);
        // Unbalanced: PCRE2 refuses it.
        if (groups_.empty()) return {};
        atom_ = groups_.back();
        groups_.pop_back();
        return {};
      case '{': return Braces();
      case '*':
      case '+':
      case '?':
      case '|': out_ += Take(1); return {};
      default: {
        StartAtom();
        size_t length = 1;  // with the continuation bytes of the character
        while (length < rest_.size() && (rest_[length] & 0xC0) == 0x80) ++length;
        out_ += Take(length);
        return {};
      }
    }
  }

  Status OpenGroup() {
    const size_t start = out_.size();
    out_ += Take(1);
    if (!rest_.empty() && rest_[0] == '?') {
      const size_t end = rest_.find_first_of(":=!>)");
      if (end == std::string_view::npos) return Refuse("a group that does not end");
      const bool closes = rest_[end] == ')';
      // In Oniguruma `a(?i)b|c` is a(?i:b|c), in PCRE2 it is not.
      if (closes && start != 0) return Refuse("flags in the middle, as in a(?i)b");
      out_ += Take(end + 1);
      if (closes) return {};
    }
    groups_.push_back(start);
    return {};
  }

  // A quantifier {n}, {n,}, {n,m}, {,m}, or a literal brace.
  Status Braces() {
    size_t i = 1;
    const auto digits = [&] {
      const size_t start = i;
      while (i < rest_.size() && std::isdigit(static_cast<unsigned char>(rest_[i]))) ++i;
      return rest_.substr(start, i - start);
    };
    const std::string_view low = digits();
    const bool comma = i < rest_.size() && rest_[i] == ',';
    if (comma) ++i;
    const std::string_view high = comma ? digits() : low;
    const bool closed = i < rest_.size() && rest_[i] == '}';
    if (!closed || (low.empty() && high.empty())) {
      StartAtom();
      Take(1);
      out_ += "\\{";
      return {};
    }
    if (!atom_) return Refuse("a quantifier with nothing before it");
    out_ += comma ? fmt::format("{{{},{}}}", low.empty() ? "0" : low, high)
                  : fmt::format("{{{}}}", low);
    Take(i + 1);
    if (rest_.starts_with('+')) {
      out_.insert(*atom_, "(?:");
      out_ += ")";
    } else if (rest_.starts_with('?') && !comma) {
      return Refuse("the quantifier {n}?");
    }
    return {};
  }

  Status Escape() {
    if (rest_.size() < 2) return Refuse("a backslash at the end");
    const char c = rest_[1];
    StartAtom();
    switch (c) {
      case 's': out_ += fmt::format("[{}]", kSpaces); break;
      case 'S': out_ += fmt::format("[^{}]", kSpaces); break;
      case 'h': out_ += fmt::format("[{}]", kHexDigits); break;
      case 'H': out_ += fmt::format("[^{}]", kHexDigits); break;
      case 'w': out_ += fmt::format("[{}]", WordClass()); break;
      case 'W': out_ += fmt::format("[^{}]", WordClass()); break;
      case 'd': out_ += fmt::format("[{}]", CategoryClass("Nd")); break;
      case 'D': out_ += fmt::format("[^{}]", CategoryClass("Nd")); break;
      case 'b':
      case 'B': {
        const std::string word = fmt::format("[{}]", WordClass());
        out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                         : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
        break;
      }
      case 'p':
      case 'P': {
        SPRY_ASSIGN_OR_RETURN(const Property property, TakeProperty());
        out_ += fmt::format("[{}{}]", property.negated ? "^" : "", property.body);
        return {};
      }
      case 'u': return TakeUnicodeEscape(out_);
      default: return CopyEscape(out_);
    }
    Take(2);
    return {};
  }

  // Escapes that both read alike, and escaped characters.
  Status CopyEscape(std::string& out) {
    const char c = rest_[1];
    constexpr std::string_view kAlike = "AzZGnrtfvaexR0123456789";
    if (std::isalpha(static_cast<unsigned char>(c)) && kAlike.find(c) == std::string_view::npos) {
      return Refuse(fmt::format("\\{}", c));
    }
    out += Take(2);
    return {};
  }

  Status TakeUnicodeEscape(std::string& out) {
    const std::string_view digits = rest_.substr(2, 4);
    for (const char c : digits) {
      if (!std::isxdigit(static_cast<unsigned char>(c))) return Refuse("\\u without four digits");
    }
    if (digits.size() != 4) return Refuse("\\u without four digits");
    out += fmt::format("\\x{{{}}}", digits);
    Take(6);
    return {};
  }

  struct Property {
    std::string body;  // of a class
    bool negated;
  };

  // \p{Name}, \P{Name}, \p{^Name}.
  Result<Property> TakeProperty() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos) {
      return Refuse("\\p without {name}");
    }
    std::string_view name = rest_.substr(3, end - 3);
    bool negated = rest_[1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    for (const char c : name) {
      if (!std::isalpha(static_cast<unsigned char>(c)) && c != '_') {
        return Refuse(fmt::format("\\p{{{}}}", name));
      }
    }
    constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
        {"Letter", "L"}, {"Mark", "M"},   {"Number", "N"},    {"Punctuation", "P"},
        {"Symbol", "S"}, {"Digit", "Nd"}, {"Separator", "Z"}, {"Alphabetic", "Alphabetic"}};
    Property property{{}, negated};
    if (name.size() <= 2) property.body = CategoryClass(name);
    for (const auto& [long_name, category] : kLongNames) {
      if (name == long_name) property.body = CategoryClass(category);
    }
    if (property.body.empty()) property.body = ScriptClass(name);
    Take(end + 1);
    return property;
  }

  // A bracketed class. Its operands (between &&) are each a union of plain items and of nested
  // brackets; PCRE2 has neither nesting nor &&, so these become alternatives and lookaheads.
  Result<std::string> Bracket(int depth) {
    if (depth > kMaxNesting) return Refuse("classes nested too deep");
    Take(1);
    const bool negated = rest_.starts_with('^');
    if (negated) Take(1);
    std::vector<std::string> operands;
    std::string items;   // plain ones of this operand
    std::string nested;  // alternatives
    const auto end_operand = [&] {
      if (nested.empty()) {
        operands.push_back(fmt::format("[{}]", items));
      } else {
        operands.push_back(items.empty() ? fmt::format("(?:{})", nested.substr(1))
                                         : fmt::format("(?:[{}]{})", items, nested));
      }
      items.clear();
      nested.clear();
    };
    bool first = true;
    while (!rest_.starts_with(']') || first) {
      if (rest_.empty()) return Refuse("a class that does not end");
      first = false;
      if (rest_.starts_with("&&")) {
        Take(2);
        end_operand();
      } else if (rest_.starts_with('[') && !rest_.starts_with("[:")) {
        SPRY_ASSIGN_OR_RETURN(const std::string inner, Bracket(depth + 1));
        nested += "|" + inner;
      } else {
        SPRY_RETURN_IF_ERROR(ClassItem(items));
      }
    }
    Take(1);
    if (operands.empty() && nested.empty()) {
      return fmt::format("[{}{}]", negated ? "^" : "", items);
    }
    end_operand();
    std::string all = operands.back();
    operands.pop_back();
    for (const std::string& operand : operands) all = fmt::format("(?={}){}", operand, all);
    return negated ? fmt::format("(?:(?!{})(?s:.))", all) : fmt::format("(?:{})", all);
  }

  Status ClassItem(std::string& items) {
    if (rest_[0] == '[') {  // [:name:]
      const size_t end = rest_.find(":]");
      if (end == std::string_view::npos) return Refuse("a class that does not end");
      items += Take(end + 2);
      return {};
    }
    if (rest_[0] == ']') items += '\\';  // the first item, hence literal
    if (rest_[0] != '\\') {
      items += Take(1);
      return {};
    }
    if (rest_.size() < 2) return Refuse("a backslash at the end");
    switch (rest_[1]) {
      case 's': items += kSpaces; break;
      case 'S': items += R"(\S\x{180e})"; break;
      case 'h': items += kHexDigits; break;
      case 'w': items += WordClass(); break;
      case 'd': items += CategoryClass("Nd"); break;
      case 'D': items += "\\D"; break;
      case 'p':
      case 'P': {
        const std::string_view spelled = rest_;
        SPRY_ASSIGN_OR_RETURN(const Property property, TakeProperty());
        // A complement within a class keeps PCRE2's own Unicode data.
        const size_t length = spelled.size() - rest_.size();
        items += property.negated ? spelled.substr(0, length) : property.body;
        return {};
      }
      case 'u': return TakeUnicodeEscape(items);
      default: return CopyEscape(items);
    }
    Take(2);
    return {};
  }

  void StartAtom() { atom_ = out_.size(); }

  std::string_view Take(size_t length) {
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  static Status Refuse(std::string_view what) {
    return Unimplemented(fmt::format("the pattern has {}, which is not supported", what));
  }

  std::string_view rest_;
  std::string out_;
  std::vector<size_t> groups_;  // where the open ones start in out_
  std::optional<size_t> atom_;  // where that which a quantifier would repeat starts in out_
};

}  // namespace

Result<std::string> TranslatePattern(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace spry
