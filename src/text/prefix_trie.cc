#include "text/prefix_trie.h"

namespace spry {

PrefixTrie::PrefixTrie(std::vector<std::pair<std::string_view, int32_t>> pieces) : nodes_(1) {
  // By text; of equal texts the first one in `pieces` first.
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Breadth first: each entry is a node and the pieces that start with its text.
  struct Range {
    uint32_t node;
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Range> ranges = {{0, 0, pieces.size(), 0}};
  for (size_t next = 0; next < ranges.size(); ++next) {
    auto [node, at, end, depth] = ranges[next];
    while (at < end && pieces[at].first.size() == depth) {
      if (nodes_[node].id < 0) nodes_[node].id = pieces[at].second;
      ++at;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (at < end) {
      const auto byte = static_cast<uint8_t>(pieces[at].first[depth]);
      size_t stop = at;
      while (stop < end && static_cast<uint8_t>(pieces[stop].first[depth]) == byte) ++stop;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.byte = byte});
      ++nodes_[node].children;
      if (node == 0) roots_[byte] = child;
      ranges.push_back({child, at, stop, depth + 1});
      at = stop;
    }
  }
}

}  // namespace spry
