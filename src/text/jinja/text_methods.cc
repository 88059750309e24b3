// Python's methods of str.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/runtime.h"
#include "text/jinja/split.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

Status TakesNone(std::string_view method, const Arguments& arguments) {
  return BoundArguments::BindByPlace(method, arguments, {}, 0).status();
}

template <std::string (*Map)(std::string_view)>
Result<Value> MapSelf(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("the method", arguments));
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(self.text()->bytes.size()));
  return runtime.MakeText(Map(self.text()->bytes), self.text()->safe);
}

template <Sides side>
Result<Value> Stripped(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace("strip", arguments, {"chars"}, 0));
  std::optional<std::string_view> set;
  if (bound.GetUnlessNone(0) != nullptr) {
    SPRY_ASSIGN_OR_RETURN(const Text* chars, bound.TextAt(0));
    set = chars->bytes;
  }
  SPRY_ASSIGN_OR_RETURN(std::string text, StripText(runtime, self.text()->bytes, side, set));
  return runtime.MakeText(std::move(text), self.text()->safe);
}

template <bool (*Is)(char32_t)>
Result<Value> AllCharacters(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("the method", arguments));
  std::string_view text = self.text()->bytes;
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size()));
  const bool empty = text.empty();
  while (!text.empty()) {
    const Utf8Character character = NextCharacter(text);
    if (!Is(character.code)) return Value::Bool(false);
    text.remove_prefix(character.length);
  }
  return Value::Bool(!empty);
}

bool IsAlphanumeric(char32_t code) { return IsAlphabetic(code) || IsNumeric(code); }

template <bool (*Is)(std::string_view)>
Result<Value> WholeText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(TakesNone("the method", arguments));
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(self.text()->bytes.size()));
  return Value::Bool(Is(self.text()->bytes));
}

bool IsAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

bool IsPrintableText(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character character = NextCharacter(text);
    if (!IsPrintable(character.code)) return false;
    text.remove_prefix(character.length);
  }
  return true;
}

// What `start` and `end` cut out of a text; `found` is false when start lies beyond its end, where
// even the empty string is not.
struct Part {
  std::string_view text;
  int64_t first = 0;  // its first character in the whole
  bool found = true;
};

Result<Part> PartOf(Runtime& runtime, const Text& text, const BoundArguments& bound) {
  const Value* start = bound.GetUnlessNone(1);
  const Value* end = bound.GetUnlessNone(2);
  if (start == nullptr && end == nullptr) return Part{text.bytes};
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(text.bytes.size()));
  int64_t from = 0;
  int64_t to = text.length;
  if (start != nullptr) {
    SPRY_ASSIGN_OR_RETURN(from, bound.Int(1));
  }
  if (end != nullptr) {
    SPRY_ASSIGN_OR_RETURN(to, bound.Int(2));
  }
  from = std::max<int64_t>(from < 0 ? from + text.length : from, 0);
  to = std::clamp<int64_t>(to < 0 ? to + text.length : to, 0, text.length);
  if (from > to) return Part{.text = {}, .first = from, .found = false};
  const size_t begin = ByteOfCharacter(text.bytes, from);
  const std::string_view rest = std::string_view(text.bytes).substr(begin);
  return Part{rest.substr(0, ByteOfCharacter(rest, to - from)), from};
}

// startswith and endswith: one text, or any of a tuple of them.
template <bool at_end>
Result<Value> Touches(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const char* name = at_end ? "endswith" : "startswith";
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace(name, arguments, {"text", "start", "end"}, 1));
  SPRY_ASSIGN_OR_RETURN(const Part part, PartOf(runtime, *self.text(), bound));
  std::vector<Value> wanted{*bound.Get(0)};
  if (wanted[0].is_tuple()) {
    const std::vector<Value> several = wanted[0].sequence()->items;
    wanted = several;
  }
  for (const Value& text : wanted) {
    if (text.text() == nullptr) {
      return InvalidArgument(
          fmt::format("{}: expected a string or a tuple of strings, found a value of type {}", name,
                      text.TypeName()));
    }
    SPRY_RETURN_IF_ERROR(runtime.ChargeText(text.text()->bytes.size()));
    const std::string_view bytes = text.text()->bytes;
    const bool touches = at_end ? part.text.ends_with(bytes) : part.text.starts_with(bytes);
    if (part.found && touches) return Value::Bool(true);
  }
  return Value::Bool(false);
}

Result<Value> FindIn(Runtime& runtime, const Value& self, const Arguments& arguments,
                     std::string_view name, bool from_right, bool must_be_there) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace(name, arguments, {"text", "start", "end"}, 1));
  SPRY_ASSIGN_OR_RETURN(const Text* wanted, bound.TextAt(0));
  SPRY_ASSIGN_OR_RETURN(const Part part, PartOf(runtime, *self.text(), bound));
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(part.text.size() + wanted->bytes.size()));
  size_t at = std::string_view::npos;
  if (part.found) {
    at = from_right ? RightFindText(part.text, wanted->bytes) : FindText(part.text, wanted->bytes);
  }
  if (at != std::string_view::npos) {
    return Value::Int(part.first + CountCharacters(part.text.substr(0, at)));
  }
  if (must_be_there) return InvalidArgument(fmt::format("{}: the text is not in there", name));
  return Value::Int(-1);
}

template <bool from_right, bool must_be_there>
Result<Value> Find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const char* name =
      must_be_there ? (from_right ? "rindex" : "index") : (from_right ? "rfind" : "find");
  return FindIn(runtime, self, arguments, name, from_right, must_be_there);
}

Result<Value> CountText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::BindByPlace("count", arguments,
                                                                      {"text", "start", "end"}, 1));
  SPRY_ASSIGN_OR_RETURN(const Text* wanted, bound.TextAt(0));
  SPRY_ASSIGN_OR_RETURN(const Part part, PartOf(runtime, *self.text(), bound));
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(part.text.size()));
  if (!part.found) return Value::Int(0);
  if (wanted->bytes.empty()) return Value::Int(CountCharacters(part.text) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = FindText(part.text, wanted->bytes, at)) != std::string_view::npos;
       at += wanted->bytes.size()) {
    SPRY_RETURN_IF_ERROR(runtime.Charge(1));
    ++count;
  }
  return Value::Int(count);
}

Result<Value> ReplaceMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::BindByPlace("replace", arguments,
                                                                      {"old", "new", "count"}, 2));
  SPRY_ASSIGN_OR_RETURN(const Text* from, bound.TextAt(0));
  SPRY_ASSIGN_OR_RETURN(const Text* to, bound.TextAt(1));
  SPRY_ASSIGN_OR_RETURN(const int64_t count, bound.Int(2, -1));
  SPRY_ASSIGN_OR_RETURN(std::string text,
                        ReplaceText(runtime, self.text()->bytes, from->bytes, to->bytes, count));
  return runtime.MakeText(std::move(text), self.text()->safe);
}

template <bool from_right>
Result<Value> SplitMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("split", arguments, {"sep", "maxsplit"}, 0));
  SPRY_ASSIGN_OR_RETURN(const int64_t most, bound.Int(1, -1));
  std::optional<std::string_view> separator;
  if (bound.GetUnlessNone(0) != nullptr) {
    SPRY_ASSIGN_OR_RETURN(const Text* text, bound.TextAt(0));
    if (text->bytes.empty()) return InvalidArgument("split: the separator is empty");
    separator = text->bytes;
  }
  SPRY_ASSIGN_OR_RETURN(
      const auto parts,
      SplitText(runtime, self.text()->bytes,
                {.separator = separator, .most = most, .from_right = from_right}));
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    items.push_back(Value::String(std::string(part), self.text()->safe));
  }
  return runtime.MakeList(std::move(items));
}

template <bool from_right>
Result<Value> Partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace("partition", arguments, {"sep"}, 1));
  SPRY_ASSIGN_OR_RETURN(const Text* separator, bound.TextAt(0));
  if (separator->bytes.empty()) return InvalidArgument("partition: the separator is empty");
  const std::string_view text = self.text()->bytes;
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(text.size()));
  const size_t at =
      from_right ? RightFindText(text, separator->bytes) : FindText(text, separator->bytes);
  std::string parts[3];
  if (at == std::string_view::npos) {
    parts[from_right ? 2 : 0] = text;
  } else {
    parts[0] = text.substr(0, at);
    parts[1] = separator->bytes;
    parts[2] = text.substr(at + separator->bytes.size());
  }
  std::vector<Value> items;
  for (std::string& part : parts) items.push_back(Value::String(std::move(part)));
  return runtime.MakeSequence(SequenceKind::kTuple, std::move(items));
}

Result<Value> SplitLinesMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("splitlines", arguments, {"keepends"}, 0));
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(self.text()->bytes.size()));
  std::vector<Value> items;
  for (const std::string_view line : SplitLines(self.text()->bytes, bound.IsTrueAt(0, false))) {
    items.push_back(Value::String(std::string(line)));
  }
  return runtime.MakeList(std::move(items));
}

Result<Value> Join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace("join", arguments, {"items"}, 1));
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(*bound.Get(0)));
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].text() == nullptr) {
      return InvalidArgument(
          fmt::format("join: expected strings, found a value of type {}", items[i].TypeName()));
    }
    if (i > 0) joined += self.text()->bytes;
    joined += items[i].text()->bytes;
    SPRY_RETURN_IF_ERROR(runtime.CheckText(joined.size()));
  }
  return runtime.MakeText(std::move(joined), self.text()->safe);
}

enum class Placing { kLeft, kRight, kCenter };
template <Placing placing>
Result<Value> Padded(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::BindByPlace("padding", arguments,
                                                                      {"width", "fillchar"}, 1));
  SPRY_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0));
  SPRY_ASSIGN_OR_RETURN(const std::string_view fill, bound.TextAt(1, " "));
  if (CountCharacters(fill) != 1) return InvalidArgument("expected one character to fill with");
  SPRY_RETURN_IF_ERROR(CheckFormatWidth(width));
  if (width <= self.text()->length) return self;
  const int64_t missing = width - self.text()->length;
  // Where the sides cannot be equal, Python's center puts more to the left in fields of odd width.
  int64_t left = 0;
  if (placing == Placing::kRight) left = missing;
  if (placing == Placing::kCenter) left = missing / 2 + (missing & width & 1);
  std::string text;
  for (int64_t i = 0; i < left; ++i) text += fill;
  text += self.text()->bytes;
  for (int64_t i = left; i < missing; ++i) text += fill;
  return runtime.MakeText(std::move(text), self.text()->safe);
}

Result<Value> ZeroFilled(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace("zfill", arguments, {"width"}, 1));
  SPRY_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0));
  SPRY_RETURN_IF_ERROR(CheckFormatWidth(width));
  if (width <= self.text()->length) return self;
  std::string text = self.text()->bytes;
  const int64_t missing = width - self.text()->length;
  const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  text.insert(sign ? 1 : 0, static_cast<size_t>(missing), '0');
  return runtime.MakeText(std::move(text));
}

template <bool prefix>
Result<Value> Removed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::BindByPlace("removal", arguments, {"text"}, 1));
  SPRY_ASSIGN_OR_RETURN(const Text* part, bound.TextAt(0));
  std::string_view text = self.text()->bytes;
  if (prefix && text.starts_with(part->bytes)) {
    text.remove_prefix(part->bytes.size());
  } else if (!prefix && text.ends_with(part->bytes)) {
    text.remove_suffix(part->bytes.size());
  }
  return runtime.MakeText(std::string(text), self.text()->safe);
}

Result<Value> FormatSelf(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(std::string text, FormatWithBraces(runtime, self.text()->bytes, arguments));
  return runtime.MakeText(std::move(text));
}

constexpr Method kTextMethods[] = {
    {"capitalize", MapSelf<Capitalize>},
    {"casefold", nullptr},
    {"center", Padded<Placing::kCenter>},
    {"count", CountText},
    {"encode", nullptr},
    {"endswith", Touches<true>},
    {"expandtabs", nullptr},
    {"find", Find<false, false>},
    {"format", FormatSelf},
    {"format_map", nullptr},
    {"index", Find<false, true>},
    {"isalnum", AllCharacters<IsAlphanumeric>},
    {"isalpha", AllCharacters<IsAlphabetic>},
    {"isascii", WholeText<IsAscii>},
    {"isdecimal", AllCharacters<IsDecimal>},
    {"isdigit", AllCharacters<IsDigit>},
    {"isidentifier", nullptr},
    {"islower", WholeText<IsLowerText>},
    {"isnumeric", AllCharacters<IsNumeric>},
    {"isprintable", WholeText<IsPrintableText>},
    {"isspace", AllCharacters<IsSpace>},
    {"istitle", nullptr},
    {"isupper", WholeText<IsUpperText>},
    {"join", Join},
    {"ljust", Padded<Placing::kLeft>},
    {"lower", MapSelf<ToLower>},
    {"lstrip", Stripped<Sides::kLeft>},
    {"maketrans", nullptr},
    {"partition", Partition<false>},
    {"removeprefix", Removed<true>},
    {"removesuffix", Removed<false>},
    {"replace", ReplaceMethod},
    {"rfind", Find<true, false>},
    {"rindex", Find<true, true>},
    {"rjust", Padded<Placing::kRight>},
    {"rpartition", Partition<true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", Stripped<Sides::kRight>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", Touches<false>},
    {"strip", Stripped<Sides::kBoth>},
    {"swapcase", MapSelf<SwapCase>},
    {"title", MapSelf<ToTitle>},
    {"translate", nullptr},
    {"upper", MapSelf<ToUpper>},
    {"zfill", ZeroFilled},
};

}  // namespace

std::span<const Method> TextMethods() { return kTextMethods; }

}  // namespace spry::jinja
