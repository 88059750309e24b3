// What a file compiled for one instruction set offers to the ops that treat each row alone: plain
// functions over one row. All give the bits of the reference kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/activation.h"
#include "tensor/dtype.h"

namespace spry {

struct NormRow {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t width = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;  // layer_norm only
  float epsilon = 0.0f;
};

// Some heads of one token, in place.
struct RopeHeads {
  float* heads = nullptr;
  int num_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;
  const float* table = nullptr;  // of the token's position: cosines, then sines
};

inline constexpr int kNumActivations = 3;

struct RowKernels {
  void (*layer_norm)(const NormRow& row) = nullptr;
  void (*rms_norm)(const NormRow& row) = nullptr;
  void (*rope_halves)(const RopeHeads& heads) = nullptr;
  void (*rope_pairs)(const RopeHeads& heads) = nullptr;
  // By activation. `up` may be null: nothing to multiply by.
  void (*activate[kNumActivations])(const float* x, const float* up, int64_t count, float* y) = {};
  void (*add)(const float* a, const float* b, int64_t count, float* y) = nullptr;
  // By dtype; null: no weight type. `count` is of whole blocks.
  void (*dequantize[kNumDTypes])(const std::byte* row, int64_t count, float* y) = {};
  // To the type and back, in place; by dtype, null: nothing to round.
  void (*round[kNumDTypes])(float* x, int64_t count) = {};
};

const RowKernels& Avx2RowKernels();    // AVX2, FMA, F16C
const RowKernels& Avx512RowKernels();  // AVX-512 F, BW, DQ, VL

}  // namespace spry
