// What a file compiled for one instruction set offers to write_kv and attention: plain functions
// over raw pointers. A line is one token's query head. Whatever lines a block holds, a line always
// sees the same instructions in the same order, those of the reference kernel: blocks share loads,
// never sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/attention.h"
#include "ops/attention/softmax_state.h"

namespace spry {

enum class KvKind : uint8_t { kF32, kBF16, kF16 };
inline constexpr int kNumKvKinds = 3;

inline constexpr int kMaxBlockLines = 16;

// A few lines of one kv head against the keys of one segment.
struct AttentionBlock {
  int lines = 0;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none
  bool has_alibi = false;
  bool first_segment = false;  // that the lines see
  const float* queries[kMaxBlockLines] = {};
  // Each line sees the keys [starts, counts) of the segment; both ascending over lines.
  int32_t starts[kMaxBlockLines] = {};
  int32_t counts[kMaxBlockLines] = {};
  float slopes[kMaxBlockLines] = {};  // alibi
  int32_t distances[kMaxBlockLines] =
      {};  // alibi: of the segment's first key from the line's token
  const std::byte* const* keys = nullptr;    // tiles of keys, and of values (kv_tiles.h)
  const std::byte* const* values = nullptr;  //
  float* scores = nullptr;                   // [lines][kKvSegment], scratch
  float* output = nullptr;                   // [lines][v_head_dim]
  int64_t output_stride = 0;                 // elements
  SoftmaxState states[kMaxBlockLines] = {};
};

struct AttentionKernels {
  int lanes = 0;      // keys of a tile
  int max_lines = 0;  // of a block
  // Around a worker's blocks, none of which has more than `lines`; null: nothing to do.
  void (*enter)(int lines) = nullptr;
  void (*leave)() = nullptr;
  // Fills output and states. By kind and lines - 1.
  void (*attend[kNumKvKinds][kMaxBlockLines])(AttentionBlock& block) = {};
  // Adds a later segment to what is known: softmax_state.h.
  void (*merge)(SoftmaxState& state, float* output, const SoftmaxState& next,
                const float* next_output, int64_t v_head_dim) = nullptr;
  // out = output / sum.
  void (*finish)(const SoftmaxState& state, const float* output, int64_t v_head_dim,
                 float* out) = nullptr;
  // Puts a key into a lane of its tile, and a value into its row of the tile. By kind.
  void (*write_key[kNumKvKinds])(const float* from, int64_t head_dim, int lane,
                                 std::byte* tile) = {};
  void (*write_value[kNumKvKinds])(const float* from, int64_t v_head_dim, int row,
                                   std::byte* tile) = {};
};

const AttentionKernels& Avx2AttentionKernels();    // AVX2, FMA, F16C
const AttentionKernels& Avx512AttentionKernels();  // AVX-512 F, BW, DQ, VL

// AVX-512 BF16 and AMX beside; for caches of bf16 alone, head sizes that are multiples of 32, those
// of values and blocks of 16. Queries and weights are rounded to bf16, so the bits are not those of
// the other kernels (amx/attention.cc).
const AttentionKernels& AmxAttentionKernels();

}  // namespace spry
