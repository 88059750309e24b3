// Cuts a Program at splitting ops: what lies between them can be replayed as one, the splitting ops
// run on their own. Which ops split is a setting, not a property of an op.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "program/program.h"

namespace spry {

// Ops [begin, end) of a Program, never empty.
struct Piece {
  int begin = 0;
  int end = 0;
  bool splits = false;  // splitting ops, to be launched one by one

  bool operator==(const Piece&) const = default;
};

// Every op is in one piece, in order; neighbouring pieces are of different kinds. InvalidArgument,
// naming the Program's ops, when it has none of some splitting op.
Result<std::vector<Piece>> PartitionAt(const Program& program, std::span<const OpId> splitting);

}  // namespace spry
