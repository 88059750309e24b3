#include "text/precompiled_map.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace spry {
namespace {

constexpr size_t kShortGrapheme = 6;  // bytes; from here on character by character

constexpr utf8proc_int32_t kSomeMark = 0x301;

uint32_t LoadU32(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i)
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << 8 * i;
  return value;
}

uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

Result<PrecompiledMap> PrecompiledMap::Create(std::string_view blob) {
  PrecompiledMap map;
  const size_t trie_bytes = blob.size() < 4 ? 0 : LoadU32(blob);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4) {
    return InvalidArgument(
        fmt::format("the precompiled character map of {} bytes says that its "
                    "trie has {}; expected a multiple of 4 that fits",
                    blob.size(), trie_bytes));
  }
  map.units_.reserve(trie_bytes / 4);
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) map.units_.push_back(LoadU32(blob.substr(at)));
  map.replacements_ = blob.substr(4 + trie_bytes);
  map.replacements_.push_back('\0');
  return map;
}

template <typename Found>
void PrecompiledMap::Walk(std::string_view text, Found found) const {
  constexpr uint32_t kLabel = 1u << 31 | 0xFF;
  size_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || (units_[node] & kLabel) != byte) return;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if ((unit & 1u << 8) == 0) continue;
    if (node >= units_.size()) return;
    const size_t value = units_[node] & ~(1u << 31);
    if (value >= replacements_.size()) return;
    if (!found(Match{i + 1, replacements_.c_str() + value})) return;
  }
}

std::optional<PrecompiledMap::Match> PrecompiledMap::Longest(std::string_view text) const {
  std::optional<Match> longest;
  Walk(text, [&](const Match& match) {
    longest = match;
    return true;
  });
  return longest;
}

std::optional<PrecompiledMap::Match> PrecompiledMap::Shortest(std::string_view text) const {
  std::optional<Match> shortest;
  Walk(text, [&](const Match& match) {
    shortest = match;
    return false;
  });
  return shortest;
}

void PrecompiledMap::ReplaceGrapheme(std::string_view grapheme, std::string& replaced) const {
  if (grapheme.size() < kShortGrapheme) {
    if (const auto match = Shortest(grapheme)) {
      replaced.append(match->replacement);
      return;
    }
  }
  while (!grapheme.empty()) {
    const std::string_view character = grapheme.substr(0, DecodeUtf8(grapheme).length);
    grapheme.remove_prefix(character.size());
    const auto match = Shortest(character);
    replaced.append(match ? match->replacement : character);
  }
}

std::string PrecompiledMap::ReplaceGraphemes(std::string_view text) const {
  std::string replaced;
  replaced.reserve(text.size());
  size_t start = 0;
  utf8proc_int32_t before = 0;
  utf8proc_int32_t state = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeUtf8(text.substr(at));
    const auto code =
        IsNewerMark(character.code) ? kSomeMark : static_cast<utf8proc_int32_t>(character.code);
    if (at > 0 && utf8proc_grapheme_break_stateful(before, code, &state)) {
      ReplaceGrapheme(text.substr(start, at - start), replaced);
      start = at;
    }
    before = code;
    at += character.length;
  }
  ReplaceGrapheme(text.substr(start), replaced);
  return replaced;
}

}  // namespace spry
