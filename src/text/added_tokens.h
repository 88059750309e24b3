// Finds added tokens in a text: at each place the longest, from left to right, with the
// `lstrip`, `rstrip` and `single_word` rules of the `tokenizers` library.
// Immutable after construction; threads may share one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/vocab_source.h"

namespace spry {

class AddedTokenMatcher {
 public:
  // Of two tokens with one content the first counts. A token without content never matches.
  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens);

  struct Part {
    std::string_view text;
    std::optional<TokenId> token;  // none: text between added tokens
  };

  // Cuts `text` (valid UTF-8) into parts, none of them empty.
  std::vector<Part> Split(std::string_view text) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;  // by byte, ascending
    int32_t token = -1;                                  // index into tokens_
  };
  struct Match {
    int32_t token;
    size_t length;
  };

  void Insert(std::string_view content, int32_t token);
  uint32_t Child(uint32_t node, uint8_t byte) const;  // 0: none
  Match LongestAt(std::string_view text) const;
  bool IsSingleWord(std::string_view before, std::string_view after) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;  // a trie; node 0 is the root
  std::array<bool, 256> starts_{};
};

}  // namespace spry
