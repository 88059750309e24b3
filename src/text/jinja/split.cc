#include "text/jinja/split.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/limits.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

using Parts = std::vector<std::string_view>;

Result<Parts> SplitAtSeparator(Runtime& runtime, std::string_view text,
                               const SplitOptions& options) {
  Parts parts;
  const std::string_view separator = *options.separator;
  const auto may_cut = [&] {
    return options.most < 0 || static_cast<int64_t>(parts.size()) < options.most;
  };
  if (!options.from_right) {
    for (size_t at; may_cut() && (at = FindText(text, separator)) != text.npos;) {
      SPRY_RETURN_IF_ERROR(runtime.Charge(1));
      parts.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
    }
    parts.push_back(text);
    return parts;
  }
  // From the right by looking in the text turned around, so that it stays linear.
  const std::string turned(text.rbegin(), text.rend());
  const std::string turned_separator(separator.rbegin(), separator.rend());
  size_t done = 0;  // bytes at the end
  for (size_t at; may_cut() && (at = FindText(turned, turned_separator, done)) != text.npos;) {
    SPRY_RETURN_IF_ERROR(runtime.Charge(1));
    parts.push_back(text.substr(text.size() - at, at - done));
    done = at + separator.size();
  }
  parts.push_back(text.substr(0, text.size() - done));
  std::ranges::reverse(parts);
  return parts;
}

// The run of characters at the start of `text` that are white space, or are not.
size_t RunLength(std::string_view text, bool space) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Character character = NextCharacter(text.substr(at));
    if (IsSpace(character.code) != space) break;
    at += static_cast<size_t>(character.length);
  }
  return at;
}

Result<Parts> SplitAtSpace(Runtime& runtime, std::string_view text, const SplitOptions& options) {
  Parts words;
  std::vector<size_t> ends;  // of the words
  size_t at = RunLength(text, /*space=*/true);
  const size_t most = options.most < 0 ? text.size() : static_cast<size_t>(options.most);
  while (at < text.size()) {
    SPRY_RETURN_IF_ERROR(runtime.Charge(1));
    if (!options.from_right && words.size() == most) {
      words.push_back(text.substr(at));
      return words;
    }
    const size_t length = RunLength(text.substr(at), /*space=*/false);
    words.push_back(text.substr(at, length));
    ends.push_back(at + length);
    at += length;
    at += RunLength(text.substr(at), /*space=*/true);
  }
  if (!options.from_right || words.size() <= most) return words;
  // The words on the left that are not cut stay one piece, with their spaces.
  const size_t kept = words.size() - most;
  words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(kept));
  words.insert(words.begin(), text.substr(0, ends[kept - 1]));
  return words;
}

}  // namespace

Result<Parts> SplitText(Runtime& runtime, std::string_view text, const SplitOptions& options) {
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(text.size()));
  if (!options.separator) SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size()));
  return options.separator ? SplitAtSeparator(runtime, text, options)
                           : SplitAtSpace(runtime, text, options);
}

Result<std::string> StripText(Runtime& runtime, std::string_view text, Sides sides,
                              std::optional<std::string_view> set) {
  // Each character is looked for in the whole set.
  if (set && set->size() > kMaxStripBytes) {
    return InvalidArgument(fmt::format("a set of {} bytes to strip is over the limit of {}",
                                       set->size(), kMaxStripBytes));
  }
  const std::string_view stripped = Strip(text, sides, set);
  SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size() - stripped.size()));
  return std::string(stripped);
}

Result<std::string> ReplaceText(Runtime& runtime, std::string_view text, std::string_view from,
                                std::string_view to, int64_t most) {
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(text.size()));
  std::string out;
  const auto may_replace = [&] { return most != 0; };
  if (from.empty()) {
    SPRY_RETURN_IF_ERROR(runtime.ChargeCharacters(text.size()));
    while (!text.empty()) {
      if (may_replace()) out += to;
      if (most > 0) --most;
      const size_t length = NextCharacter(text).length;
      out += text.substr(0, length);
      text.remove_prefix(length);
      SPRY_RETURN_IF_ERROR(runtime.CheckText(out.size()));
    }
    if (may_replace()) out += to;
    return out;
  }
  for (size_t at; may_replace() && (at = FindText(text, from)) != text.npos;) {
    SPRY_RETURN_IF_ERROR(runtime.Charge(1));
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
    if (most > 0) --most;
    SPRY_RETURN_IF_ERROR(runtime.CheckText(out.size()));
  }
  out += text;
  return out;
}

}  // namespace spry::jinja
