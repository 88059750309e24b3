// Upper, lower and title case as Python has them: Unicode's full mappings, where one character may
// become several.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "text/jinja/characters.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

// utf8proc has the mappings from one character to one; these are the others (SpecialCasing.txt).
struct FullMapping {
  char32_t code;
  std::string_view upper;
  std::string_view title;
};
constexpr FullMapping kFullMappings[] = {
    {0x00DF, "SS", "Ss"},
    {0x0149, "\u02BCN", "\u02BCN"},
    {0x01F0, "J\u030C", "J\u030C"},
    {0x0390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x03B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x0587, "\u0535\u0552", "\u0535\u0582"},
    {0x1E96, "H\u0331", "H\u0331"},
    {0x1E97, "T\u0308", "T\u0308"},
    {0x1E98, "W\u030A", "W\u030A"},
    {0x1E99, "Y\u030A", "Y\u030A"},
    {0x1E9A, "A\u02BE", "A\u02BE"},
    {0x1F50, "\u03A5\u0313", "\u03A5\u0313"},
    {0x1F52, "\u03A5\u0313\u0300", "\u03A5\u0313\u0300"},
    {0x1F54, "\u03A5\u0313\u0301", "\u03A5\u0313\u0301"},
    {0x1F56, "\u03A5\u0313\u0342", "\u03A5\u0313\u0342"},
    {0x1F80, "\u1F08\u0399", "\u1F88"},
    {0x1F81, "\u1F09\u0399", "\u1F89"},
    {0x1F82, "\u1F0A\u0399", "\u1F8A"},
    {0x1F83, "\u1F0B\u0399", "\u1F8B"},
    {0x1F84, "\u1F0C\u0399", "\u1F8C"},
    {0x1F85, "\u1F0D\u0399", "\u1F8D"},
    {0x1F86, "\u1F0E\u0399", "\u1F8E"},
    {0x1F87, "\u1F0F\u0399", "\u1F8F"},
    {0x1F88, "\u1F08\u0399", "\u1F88"},
    {0x1F89, "\u1F09\u0399", "\u1F89"},
    {0x1F8A, "\u1F0A\u0399", "\u1F8A"},
    {0x1F8B, "\u1F0B\u0399", "\u1F8B"},
    {0x1F8C, "\u1F0C\u0399", "\u1F8C"},
    {0x1F8D, "\u1F0D\u0399", "\u1F8D"},
    {0x1F8E, "\u1F0E\u0399", "\u1F8E"},
    {0x1F8F, "\u1F0F\u0399", "\u1F8F"},
    {0x1F90, "\u1F28\u0399", "\u1F98"},
    {0x1F91, "\u1F29\u0399", "\u1F99"},
    {0x1F92, "\u1F2A\u0399", "\u1F9A"},
    {0x1F93, "\u1F2B\u0399", "\u1F9B"},
    {0x1F94, "\u1F2C\u0399", "\u1F9C"},
    {0x1F95, "\u1F2D\u0399", "\u1F9D"},
    {0x1F96, "\u1F2E\u0399", "\u1F9E"},
    {0x1F97, "\u1F2F\u0399", "\u1F9F"},
    {0x1F98, "\u1F28\u0399", "\u1F98"},
    {0x1F99, "\u1F29\u0399", "\u1F99"},
    {0x1F9A, "\u1F2A\u0399", "\u1F9A"},
    {0x1F9B, "\u1F2B\u0399", "\u1F9B"},
    {0x1F9C, "\u1F2C\u0399", "\u1F9C"},
    {0x1F9D, "\u1F2D\u0399", "\u1F9D"},
    {0x1F9E, "\u1F2E\u0399", "\u1F9E"},
    {0x1F9F, "\u1F2F\u0399", "\u1F9F"},
    {0x1FA0, "\u1F68\u0399", "\u1FA8"},
    {0x1FA1, "\u1F69\u0399", "\u1FA9"},
    {0x1FA2, "\u1F6A\u0399", "\u1FAA"},
    {0x1FA3, "\u1F6B\u0399", "\u1FAB"},
    {0x1FA4, "\u1F6C\u0399", "\u1FAC"},
    {0x1FA5, "\u1F6D\u0399", "\u1FAD"},
    {0x1FA6, "\u1F6E\u0399", "\u1FAE"},
    {0x1FA7, "\u1F6F\u0399", "\u1FAF"},
    {0x1FA8, "\u1F68\u0399", "\u1FA8"},
    {0x1FA9, "\u1F69\u0399", "\u1FA9"},
    {0x1FAA, "\u1F6A\u0399", "\u1FAA"},
    {0x1FAB, "\u1F6B\u0399", "\u1FAB"},
    {0x1FAC, "\u1F6C\u0399", "\u1FAC"},
    {0x1FAD, "\u1F6D\u0399", "\u1FAD"},
    {0x1FAE, "\u1F6E\u0399", "\u1FAE"},
    {0x1FAF, "\u1F6F\u0399", "\u1FAF"},
    {0x1FB2, "\u1FBA\u0399", "\u1FBA\u0345"},
    {0x1FB3, "\u0391\u0399", "\u1FBC"},
    {0x1FB4, "\u0386\u0399", "\u0386\u0345"},
    {0x1FB6, "\u0391\u0342", "\u0391\u0342"},
    {0x1FB7, "\u0391\u0342\u0399", "\u0391\u0342\u0345"},
    {0x1FBC, "\u0391\u0399", "\u1FBC"},
    {0x1FC2, "\u1FCA\u0399", "\u1FCA\u0345"},
    {0x1FC3, "\u0397\u0399", "\u1FCC"},
    {0x1FC4, "\u0389\u0399", "\u0389\u0345"},
    {0x1FC6, "\u0397\u0342", "\u0397\u0342"},
    {0x1FC7, "\u0397\u0342\u0399", "\u0397\u0342\u0345"},
    {0x1FCC, "\u0397\u0399", "\u1FCC"},
    {0x1FD2, "\u0399\u0308\u0300", "\u0399\u0308\u0300"},
    {0x1FD3, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x1FD6, "\u0399\u0342", "\u0399\u0342"},
    {0x1FD7, "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
    {0x1FE2, "\u03A5\u0308\u0300", "\u03A5\u0308\u0300"},
    {0x1FE3, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x1FE4, "\u03A1\u0313", "\u03A1\u0313"},
    {0x1FE6, "\u03A5\u0342", "\u03A5\u0342"},
    {0x1FE7, "\u03A5\u0308\u0342", "\u03A5\u0308\u0342"},
    {0x1FF2, "\u1FFA\u0399", "\u1FFA\u0345"},
    {0x1FF3, "\u03A9\u0399", "\u1FFC"},
    {0x1FF4, "\u038F\u0399", "\u038F\u0345"},
    {0x1FF6, "\u03A9\u0342", "\u03A9\u0342"},
    {0x1FF7, "\u03A9\u0342\u0399", "\u03A9\u0342\u0345"},
    {0x1FFC, "\u03A9\u0399", "\u1FFC"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
    {0xFB13, "\u0544\u0546", "\u0544\u0576"},
    {0xFB14, "\u0544\u0535", "\u0544\u0565"},
    {0xFB15, "\u0544\u053B", "\u0544\u056B"},
    {0xFB16, "\u054E\u0546", "\u054E\u0576"},
    {0xFB17, "\u0544\u053D", "\u0544\u056D"},
};

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kCapitalIWithDot = 0x130;

const FullMapping* FindFullMapping(char32_t code) {
  const auto* found = std::ranges::lower_bound(kFullMappings, code, {}, &FullMapping::code);
  return found != std::end(kFullMappings) && found->code == code ? found : nullptr;
}

char32_t Mapped(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t code) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(code)));
}

bool IsCased(char32_t code) {
  if (code < 0x80) return IsAlphabetic(code);
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  return property->category == UTF8PROC_CATEGORY_LU || property->category == UTF8PROC_CATEGORY_LL ||
         property->category == UTF8PROC_CATEGORY_LT || Mapped(utf8proc_toupper, code) != code ||
         Mapped(utf8proc_tolower, code) != code;
}

bool IsCaseIgnorable(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019;
  }
}

// A sigma at the end of a word has a form of its own.
bool EndsWord(std::string_view before, std::string_view after) {
  while (!before.empty() && IsCaseIgnorable(LastCharacter(before))) {
    std::string last;
    AppendUtf8(LastCharacter(before), last);
    before.remove_suffix(last.size());
  }
  if (before.empty() || !IsCased(LastCharacter(before))) return false;
  while (!after.empty() && IsCaseIgnorable(NextCharacter(after).code)) {
    after.remove_prefix(NextCharacter(after).length);
  }
  return after.empty() || !IsCased(NextCharacter(after).code);
}

void AppendUpper(char32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code >= 'a' && code <= 'z' ? code - 0x20 : code);
    return;
  }
  const FullMapping* full = FindFullMapping(code);
  if (full != nullptr) {
    out += full->upper;
  } else {
    AppendUtf8(Mapped(utf8proc_toupper, code), out);
  }
}

void AppendTitle(char32_t code, std::string& out) {
  if (code < 0x80) return AppendUpper(code, out);
  const FullMapping* full = FindFullMapping(code);
  if (full != nullptr) {
    out += full->title;
  } else {
    AppendUtf8(Mapped(utf8proc_totitle, code), out);
  }
}

void AppendLower(std::string_view text, size_t at, const Utf8Character& character,
                 std::string& out) {
  if (character.code < 0x80) {
    const bool upper = character.code >= 'A' && character.code <= 'Z';
    out += static_cast<char>(upper ? character.code + 0x20 : character.code);
  } else if (character.code == kCapitalIWithDot) {
    out += "i\u0307";
  } else if (character.code == kCapitalSigma) {
    const std::string_view after = text.substr(at + static_cast<size_t>(character.length));
    out += EndsWord(text.substr(0, at), after) ? "\u03C2" : "\u03C3";
  } else {
    AppendUtf8(Mapped(utf8proc_tolower, character.code), out);
  }
}

template <typename Append>
std::string MapCharacters(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = NextCharacter(text.substr(at));
    append(at, character, out);
    at += static_cast<size_t>(character.length);
  }
  return out;
}

bool IsUpperLetter(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z';
  return utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_LU;
}
bool IsLowerLetter(char32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z';
  return utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_LL;
}

// At least one letter is `wanted`, none is of the other case.
bool IsAllOfCase(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool found = false;
  while (!text.empty()) {
    const Utf8Character character = NextCharacter(text);
    if (other(character.code)) return false;
    found = found || wanted(character.code);
    text.remove_prefix(character.length);
  }
  return found;
}

}  // namespace

std::string ToUpper(std::string_view text) {
  return MapCharacters(text, [](size_t, const Utf8Character& character, std::string& out) {
    AppendUpper(character.code, out);
  });
}

std::string ToLower(std::string_view text) {
  return MapCharacters(text, [&](size_t at, const Utf8Character& character, std::string& out) {
    AppendLower(text, at, character, out);
  });
}

std::string Capitalize(std::string_view text) {
  return MapCharacters(text, [&](size_t at, const Utf8Character& character, std::string& out) {
    if (at == 0) {
      AppendTitle(character.code, out);
    } else {
      AppendLower(text, at, character, out);
    }
  });
}

std::string SwapCase(std::string_view text) {
  return MapCharacters(text, [&](size_t at, const Utf8Character& character, std::string& out) {
    if (IsUpperLetter(character.code)) {
      AppendLower(text, at, character, out);
    } else {
      AppendUpper(character.code, out);
    }
  });
}

std::string ToTitle(std::string_view text) {
  bool in_word = false;
  return MapCharacters(text, [&](size_t at, const Utf8Character& character, std::string& out) {
    if (in_word) {
      AppendLower(text, at, character, out);
    } else {
      AppendTitle(character.code, out);
    }
    in_word = IsCased(character.code);
  });
}

bool IsUpperText(std::string_view text) { return IsAllOfCase(text, IsUpperLetter, IsLowerLetter); }
bool IsLowerText(std::string_view text) { return IsAllOfCase(text, IsLowerLetter, IsUpperLetter); }

}  // namespace spry::jinja
