// linear on tensor cores, for 16-bit activations and tiled weights (weight_tiles.h).
//
// Row-function rule: K is cut into kSegments runs of whole tiles of 32, by K alone. A segment is
// one ascending chain of mma over its tiles; segments are added in ascending order. Every kernel
// here keeps that, so rows do not depend on how many there are.
#pragma once

#include <cstdint>

#include "device/cuda/draw.h"
#include "device/cuda/kernel.h"
#include "device/cuda/row_taker.h"
#include "ops/activation.h"
#include "ops/linear.h"

namespace spry::cuda {

inline constexpr int kSegments = 8;
// Of a row that is normed on the way in: what a warp can hold in registers.
inline constexpr int32_t kMaxNormWidth = 4096;

// What the linear that makes a program's logits does besides.
struct LogitsPlan {
  int32_t drawn_rows = 0;  // up to so many rows it scores the logits that it makes (draw.cuh)
  bool gathers = false;    // where rows are in order, takes x from before gather_samples
};

struct NormArgs16 {
  NormKind kind = NormKind::kNone;
  float epsilon = 0.0f;
  float inverse_width = 0.0f;
  const float* weight = nullptr;
  const float* bias = nullptr;  // layer norm only
};

struct MmaLinearArgs {
  Matrix x;           // [rows, K]
  Matrix y;           // [rows, N]
  Matrix residual;    // data null: none
  Matrix normed;      // with a norm: room for [rows, K]
  Matrix ungathered;  // where gather_samples took x from; data null: x was not gathered
  // Room for packed rows (linear_input.cuh); null: no kernel for this linear takes them.
  std::byte* packed = nullptr;
  HandOver x_handed = HandOver::kNever;  // x is in `packed` already
  RowTaker taker;                        // of y
  const uint4* weight = nullptr;
  const float* bias = nullptr;
  int32_t outputs = 0;  // N
  int32_t depth = 0;    // K
  Activation activation = Activation::kNone;
  NormArgs16 norm;
  std::byte* best_draws = nullptr;  // y is the logits and draws are collected there
  DrawArgs draw;                    // of a launch
  bool stores = true;               // false: y is drawn from as it is made, and not kept

  bool ArePacked(const LaunchContext& context) const;
};

// Weights that are streamed (linear_stream.cuh) for up to kMaxStreamRows rows; above, other kernels
// are as fast. Where a cluster shares K it has to exchange sums, which is worth it from
// kMinSplitRows rows on, and for weights that take longer than that to read.
inline constexpr int64_t kMinStreamElements = 1 << 23;
inline constexpr int64_t kMinStreamDepth = 2048;
inline constexpr int32_t kMinSplitRows = 9;
inline constexpr int32_t kMaxStreamRows = 256;
// Groups of 16 outputs for every block, from which on rows cost little beside weights.
inline constexpr int32_t kMinWholeGroups = 8;
bool IsStreamed(int64_t outputs, int64_t depth, bool warpgroups);
int32_t CountStreamClusters();  // that the card runs at once; 0: none
// Of a streamed linear: the eights of rows that a block has at a time; 0: at so many rows other
// kernels are faster.
int32_t StreamEights(int64_t outputs, bool makes_floats, int32_t rows,
                     const LaunchContext& context);
// Whether all of K is in every block.
bool StreamsWhole(int64_t outputs, bool makes_floats, const LaunchContext& context);

// Linears whose weights wait on the multiprocessors (linear_resident.cuh), by shape and by rows.
inline constexpr int32_t kResidentOutputs = 128;      // of a block
inline constexpr int64_t kResidentDepth = 768;        // of a block
inline constexpr int32_t kResidentBlocks = 4;         // of a cluster, for that many times the depth
inline constexpr int32_t kMinResidentOutputs = 1536;  // where nothing is shared out
inline constexpr int32_t kMinResidentRows = 33;
inline constexpr int32_t kMinSharedRows = 65;  // where depth is shared out: a cluster costs 2 us
inline constexpr int32_t kMaxResidentRows = 512;
bool IsResident(int64_t outputs, int64_t depth, bool warpgroups);
inline int32_t ResidentEights(int32_t rows) { return rows <= 128 ? 4 : 8; }
inline bool TakesResident(int64_t depth, int32_t rows) {
  const int32_t least = depth > kResidentDepth ? kMinSharedRows : kMinResidentRows;
  return rows >= least && rows <= kMaxResidentRows;
}

// Deep linears of many rows (linear_pipelined.cuh). For those of K = 768 the kernels that keep
// whole rows in shared memory are as fast, where rows have to be packed first.
inline constexpr int64_t kMinPipelinedDepth = 1536;
inline constexpr int32_t kMinPipelinedRows = 257;
inline constexpr int32_t kPipelinedOutputs = 128;  // of a tile
inline constexpr int32_t kMinSplitTiles = 12;      // of K in a segment, for a cluster to share K
bool IsPipelined(int64_t outputs, int64_t depth, bool warpgroups);
// The eights of rows of a block's tile; 0: at so many rows other kernels are faster, or alone.
int32_t PipelinedEights(int64_t outputs, int64_t depth, int32_t rows, const LaunchContext& context);

// Whether linear_logits.cuh makes logits from rows of `depth` elements, where they are more than 8.
bool TakesLogits(int64_t depth, bool warpgroups);
// Up to how many rows of logits are drawn where they are made.
int32_t MostDrawnRows(int64_t depth, bool warpgroups);

// Room for packed rows of a linear of any kind, and of the logits; 0 for others.
int64_t PackedRowBytes(int64_t outputs, int64_t depth, int32_t max_rows, bool warpgroups);
int64_t PackedLogitBytes(int64_t depth, int32_t max_rows, bool warpgroups);

LaunchFn ChooseMmaLinear(DType activation, DType output);
// The two halves, compiled apart.
LaunchFn ChooseMmaLinearF16(DType output);
LaunchFn ChooseMmaLinearBf16(DType output);

}  // namespace spry::cuda
