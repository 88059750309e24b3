// Filters that make text of text.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/escape_html.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/limits.h"
#include "text/jinja/operators.h"
#include "text/jinja/split.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

bool IsSafe(const Value& value) { return value.text() != nullptr && value.text()->safe; }

template <std::string (*Map)(std::string_view)>
Result<Value> MapInput(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("the filter", arguments, {}, 0).status());
  SPRY_ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size()));
  return runtime.MakeText(Map(text), IsSafe(input));
}

// The filter's own rule, other than the method's: words begin after spaces, hyphens and brackets.
std::string TitleOfWords(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto ends_word = [](std::string_view rest) {
      return IsSpace(NextCharacter(rest).code) ||
             std::string_view("-({[<").find(rest[0]) != std::string_view::npos;
    };
    size_t end = 0;
    while (end < text.size() && !ends_word(text.substr(end))) {
      end += static_cast<size_t>(NextCharacter(text.substr(end)).length);
    }
    const std::string_view word = text.substr(0, end);
    const size_t first = ByteOfCharacter(word, 1);
    out += ToUpper(word.substr(0, first)) + ToLower(word.substr(first));
    const size_t separator = end < text.size() ? NextCharacter(text.substr(end)).length : 0;
    out += text.substr(end, separator);
    text.remove_prefix(end + separator);
  }
  return out;
}

Result<Value> Trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("trim", arguments, {"chars"}, 0));
  SPRY_ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  std::optional<std::string_view> set;
  if (bound.GetUnlessNone(0) != nullptr) {
    SPRY_ASSIGN_OR_RETURN(const Text* chars, bound.TextAt(0));
    set = chars->bytes;
  }
  SPRY_ASSIGN_OR_RETURN(std::string trimmed, StripText(runtime, text, Sides::kBoth, set));
  return runtime.MakeText(std::move(trimmed), IsSafe(input));
}

Result<Value> Replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("replace", arguments, {"old", "new", "count"}, 2));
  SPRY_ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  SPRY_ASSIGN_OR_RETURN(const std::string from, runtime.ToText(*bound.Get(0)));
  SPRY_ASSIGN_OR_RETURN(const std::string to, runtime.ToText(*bound.Get(1)));
  int64_t count = -1;
  if (bound.GetUnlessNone(2) != nullptr) {
    SPRY_ASSIGN_OR_RETURN(count, bound.Int(2));
  }
  SPRY_ASSIGN_OR_RETURN(std::string out, ReplaceText(runtime, text, from, to, count));
  return runtime.MakeText(std::move(out));
}

Result<Value> Indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("indent", arguments, {"width", "first", "blank"}, 0));
  if (input.text() == nullptr) {
    return InvalidArgument(
        fmt::format("indent: expected a string, found a value of type {}", input.TypeName()));
  }
  std::string indention;
  if (bound.Get(0) != nullptr && bound.Get(0)->text() != nullptr) {
    indention = bound.Get(0)->text()->bytes;
  } else {
    SPRY_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 4));
    SPRY_RETURN_IF_ERROR(CheckFormatWidth(width));
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const std::string whole = input.text()->bytes + "\n";
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(whole.size()));
  const bool blank = bound.IsTrueAt(2, false);
  std::string out = bound.IsTrueAt(1, false) ? indention : "";
  bool first = true;
  for (const std::string_view line : SplitLines(whole, /*keep_ends=*/false)) {
    if (!first) out += '\n';
    if (!first && (blank || !line.empty())) out += indention;
    first = false;
    out += line;
    SPRY_RETURN_IF_ERROR(runtime.CheckText(out.size()));
  }
  return runtime.MakeText(std::move(out), input.text()->safe);
}

Result<Value> Truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0));
  SPRY_ASSIGN_OR_RETURN(const int64_t length, bound.Int(0, 255));
  SPRY_ASSIGN_OR_RETURN(const std::string_view end, bound.TextAt(2, "..."));
  int64_t leeway = 5;
  if (bound.GetUnlessNone(3) != nullptr) {
    SPRY_ASSIGN_OR_RETURN(leeway, bound.Int(3));
  }
  if (length < CountCharacters(end) || leeway < 0) {
    return InvalidArgument(
        "truncate: the length is less than that of 'end', or leeway is less "
        "than 0");
  }
  SPRY_ASSIGN_OR_RETURN(const int64_t input_length, LengthOf(input));
  if (input_length - leeway <= length) return input;
  if (input.text() == nullptr) {
    return InvalidArgument(
        fmt::format("truncate: expected a string, found a value of type {}", input.TypeName()));
  }
  const Text& text = *input.text();
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(text.bytes.size()));
  const int64_t kept = length - CountCharacters(end);
  std::string_view cut = std::string_view(text.bytes).substr(0, ByteOfCharacter(text.bytes, kept));
  if (!bound.IsTrueAt(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return runtime.MakeText(fmt::format("{}{}", cut, end));
}

Result<Value> WordCount(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("wordcount", arguments, {}, 0).status());
  SPRY_ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size()));
  std::string_view rest = text;
  int64_t count = 0;
  bool in_word = false;
  while (!rest.empty()) {
    const Utf8Character character = NextCharacter(rest);
    const bool word =
        IsAlphabetic(character.code) || IsNumeric(character.code) || character.code == '_';
    if (word && !in_word) ++count;
    in_word = word;
    rest.remove_prefix(character.length);
  }
  return Value::Int(count);
}

Result<Value> Center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("center", arguments, {"width"}, 0));
  SPRY_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 80));
  SPRY_ASSIGN_OR_RETURN(std::string text, runtime.ToText(input));
  const Value whole = Value::String(std::move(text), IsSafe(input));
  SPRY_ASSIGN_OR_RETURN(const Value method, runtime.GetAttribute(whole, "center"));
  return runtime.Call(method, {.positional = {Value::Int(width)}});
}

Result<Value> FormatInput(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    return InvalidArgument("format: expected values by place or by name, found both");
  }
  SPRY_ASSIGN_OR_RETURN(const std::string format, runtime.ToText(input));
  Value values = Value::Of(SequenceKind::kTuple, arguments.positional);
  if (!arguments.named.empty()) {
    Dict dict;
    for (const auto& [name, value] : arguments.named) dict.Set(name, value);
    SPRY_ASSIGN_OR_RETURN(values, runtime.MakeDict(std::move(dict)));
  }
  SPRY_ASSIGN_OR_RETURN(std::string out, FormatWithPercent(runtime, format, values));
  return runtime.MakeText(std::move(out));
}

Result<Value> ForceEscape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("escape", arguments, {}, 0).status());
  SPRY_ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size()));
  return runtime.MakeText(EscapeHtml(text), /*safe=*/true);
}

Result<Value> Escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return IsSafe(input) ? input : ForceEscape(runtime, input, arguments);
}

Result<Value> Safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("safe", arguments, {}, 0).status());
  SPRY_ASSIGN_OR_RETURN(std::string text, runtime.ToText(input));
  return runtime.MakeText(std::move(text), /*safe=*/true);
}

void AppendQuoted(std::string_view text, bool in_query, std::string& out) {
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !in_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<uint8_t>(c)));
    }
  }
}

Result<Value> UrlEncode(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("urlencode", arguments, {}, 0).status());
  std::string out;
  if (input.dict() == nullptr) {
    const bool plain =
        input.text() != nullptr || input.is_number() || input.is_none() || input.is_undefined();
    if (!plain) {
      return InvalidArgument(
          fmt::format("urlencode: expected a string or a dict, found a value "
                      "of type {}",
                      input.TypeName()));
    }
    SPRY_ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
    SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size()));
    AppendQuoted(text, /*in_query=*/false, out);
    return runtime.MakeText(std::move(out));
  }
  for (const auto& [key, value] : input.dict()->entries()) {
    SPRY_ASSIGN_OR_RETURN(const std::string key_text, runtime.ToText(key));
    SPRY_ASSIGN_OR_RETURN(const std::string value_text, runtime.ToText(value));
    SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(key_text.size() + value_text.size()));
    if (!out.empty()) out += '&';
    AppendQuoted(key_text, /*in_query=*/true, out);
    out += '=';
    AppendQuoted(value_text, /*in_query=*/true, out);
    SPRY_RETURN_IF_ERROR(runtime.CheckText(out.size()));
  }
  return runtime.MakeText(std::move(out));
}

Result<Value> ToString(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(BoundArguments::Bind("string", arguments, {}, 0).status());
  if (input.text() != nullptr) return input;
  SPRY_ASSIGN_OR_RETURN(std::string text, runtime.ToText(input));
  return runtime.MakeText(std::move(text));
}

constexpr Filter kTextFilters[] = {
    {"capitalize", MapInput<Capitalize>},
    {"center", Center},
    {"e", Escape},
    {"escape", Escape},
    {"forceescape", ForceEscape},
    {"format", FormatInput},
    {"indent", Indent},
    {"lower", MapInput<ToLower>},
    {"replace", Replace},
    {"safe", Safe},
    {"string", ToString},
    {"title", MapInput<TitleOfWords>},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", MapInput<ToUpper>},
    {"urlencode", UrlEncode},
    {"wordcount", WordCount},
};

}  // namespace

std::span<const Filter> TextFilters() { return kTextFilters; }

}  // namespace spry::jinja
