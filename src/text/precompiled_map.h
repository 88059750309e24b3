// SentencePiece's precompiled character map: what character sequences become when a text is
// normalised. The blob is u32 the size of a trie in bytes; the trie, a double array of u32 units as
// the Darts-clone library lays them out; then the replacements, each ended by a zero byte. All
// numbers are little endian. A unit has
//   bits 0-7   the byte that leads to it     bit 31 set with them: it is a value, never a child
//   bit 8      a replacement ends here; its value (bits 0-30) is the unit at the node's own offset
//   bits 10-30 the offset to its children, times 256 if bit 9 is set
// Nothing in a blob is trusted: what points outside of it matches nothing.
// Immutable after Create; threads may share one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spry {

class PrecompiledMap {
 public:
  // Refuses a blob whose sizes contradict each other.
  static Result<PrecompiledMap> Create(std::string_view blob);

  struct Match {
    size_t length;                 // of what is replaced
    std::string_view replacement;  // may be empty
  };
  // The longest entry that `text` starts with (SentencePiece), or the shortest (`tokenizers`).
  std::optional<Match> Longest(std::string_view text) const;
  std::optional<Match> Shortest(std::string_view text) const;

  // `text` as the Precompiled of `tokenizers` changes it: grapheme by grapheme, where one that is
  // short is replaced as a whole by what its start stands for, and others character by character.
  // `text` is valid UTF-8.
  std::string ReplaceGraphemes(std::string_view text) const;

 private:
  PrecompiledMap() = default;
  template <typename Found>
  void Walk(std::string_view text, Found found) const;
  void ReplaceGrapheme(std::string_view grapheme, std::string& replaced) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace spry
