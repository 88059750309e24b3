// Finds all pieces that a text starts with, in one walk.
// Immutable after construction; threads may share one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace spry {

class PrefixTrie {
 public:
  // Pieces (not empty) and their ids; of equal pieces the first counts.
  explicit PrefixTrie(std::vector<std::pair<std::string_view, int32_t>> pieces);

  // Calls `found(length, id)` for each piece that `text` starts with, the shortest first.
  template <typename Found>
  void Walk(std::string_view text, Found found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].id >= 0) found(i + 1, nodes_[node].id);
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;  // the children lie side by side, by byte
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t id = -1;
  };

  uint32_t Child(uint32_t node, uint8_t byte) const {  // 0: none
    if (node == 0) return roots_[byte];
    const Node* begin = nodes_.data() + nodes_[node].first_child;
    const Node* end = begin + nodes_[node].children;
    const Node* child = std::lower_bound(
        begin, end, byte, [](const Node& a, uint8_t wanted) { return a.byte < wanted; });
    return child != end && child->byte == byte ? static_cast<uint32_t>(child - nodes_.data()) : 0;
  }

  std::vector<Node> nodes_;  // 0 is the root
  std::array<uint32_t, 256> roots_{};
};

}  // namespace spry
