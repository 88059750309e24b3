#include "program/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace spry {

Result<std::vector<Piece>> PartitionAt(const Program& program, std::span<const OpId> splitting) {
  std::array<bool, kNumOps> splits = {};
  for (const OpId id : splitting) splits[static_cast<int>(id)] = true;
  std::array<bool, kNumOps> present = {};
  std::vector<Piece> pieces;
  for (int i = 0; i < static_cast<int>(program.ops.size()); ++i) {
    const int id = static_cast<int>(program.ops[i].id);
    present[id] = true;
    if (pieces.empty() || pieces.back().splits != splits[id]) {
      pieces.push_back({.begin = i, .end = i, .splits = splits[id]});
    }
    pieces.back().end = i + 1;
  }
  for (const OpId id : splitting) {
    if (present[static_cast<int>(id)]) continue;
    std::vector<std::string_view> names;
    for (int i = 0; i < kNumOps; ++i) {
      if (present[i]) names.push_back(OpName(static_cast<OpId>(i)));
    }
    return InvalidArgument(
        fmt::format("--splitting-ops names {}, which this program has not; its "
                    "ops are {}",
                    OpName(id), fmt::join(names, ", ")));
  }
  return pieces;
}

}  // namespace spry
