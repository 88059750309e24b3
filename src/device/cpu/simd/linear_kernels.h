// What a file compiled for one instruction set offers to the linear op: for each form of weights
// one plain function over raw pointers, for any number of rows. The op (linear.h) takes it when a
// weight is bound. Whatever it does with many rows, a row's bits are those that it has alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/simd/always_inline.h"
#include "device/cpu/simd/packed_weight.h"
#include "ops/activation.h"

namespace spry {

// A few rows against one panel: y = act(x W^T + bias) + residual.
struct LinearTile {
  const std::byte* panel = nullptr;
  int64_t k = 0;
  const std::byte* x = nullptr;  // the first row, in the form that the weight wants
  int64_t x_stride = 0;          // bytes
  float* y = nullptr;
  int64_t y_stride = 0;             // elements
  int64_t columns = 0;              // of y that the panel has, 1..32
  const float* bias = nullptr;      // of those columns, or null
  const float* residual = nullptr;  // likewise
  int64_t residual_stride = 0;      // elements
  Activation activation = Activation::kNone;
};

// Any number of rows against neighbouring panels of one weight.
struct PanelRun {
  LinearTile first;  // the first row and panel; `columns` counts those of all panels
  int64_t panel_bytes = 0;
  int64_t rows = 0;
  float largest_weight = 0.0f;   // of the weight, as FormKernel::largest_weight gave it
  std::byte* scratch = nullptr;  // kLinearScratchBytes, 64-byte aligned

  SPRY_INLINE int64_t num_panels() const { return NumPanels(first.columns); }
};
inline constexpr int64_t kLinearScratchBytes = 288 << 10;

SPRY_INLINE LinearTile TileAt(const PanelRun& run, int64_t panel, int64_t row) {
  LinearTile tile = run.first;
  const int64_t column = panel * kPanelRows;
  tile.panel += panel * run.panel_bytes;
  tile.columns = tile.columns - column < kPanelRows ? tile.columns - column : kPanelRows;
  tile.x += row * tile.x_stride;
  tile.y += row * tile.y_stride + column;
  if (tile.bias != nullptr) tile.bias += column;
  if (tile.residual != nullptr) tile.residual += row * tile.residual_stride + column;
  return tile;
}

// A form of activations that some weights want in place of f32.
struct RowForm {
  void (*prepare)(const float* x, int64_t k, std::byte* row) = nullptr;  // null: f32 as it is
  int group_bytes = 0;                                                   // that 32 k take
};

struct FormKernel {
  void (*multiply)(const PanelRun& run) = nullptr;
  RowForm rows;
  // What no element of the panel exceeds in magnitude, no NaN; null: nobody asks.
  float (*largest_weight)(const std::byte* panel, int64_t k) = nullptr;
};

struct LinearKernels {
  FormKernel forms[kNumWeightForms];
};

// A quantised row: K int8 q, then per group of 32: f32 scale s; f32 s * sum(q); int32 -8 sum(q);
// then per half of a group int32 sum(q).
//   x ~ s q. A weight d (w - 8) then contributes d s (sum(w q) - 8 sum(q)), and d w + m contributes
//   d s sum(w q) + m s sum(q). Weights with scales for 16 k take halves of groups one by one. Rows
//   start at multiples of 64 bytes.
inline constexpr int kQuantizedGroupBytes = kGroup + 20;
struct QuantizedRow {
  const int8_t* q;
  const float* scale;
  const float* scaled_sum;
  const int32_t* minus_8_sum;
  const int32_t* half_sums;
};
SPRY_INLINE QuantizedRow MapQuantizedRow(const std::byte* row, int64_t k) {
  const int64_t groups = k / kGroup;
  const float* scale = reinterpret_cast<const float*>(row + k);
  const int32_t* sums = reinterpret_cast<const int32_t*>(scale + 2 * groups);
  return {reinterpret_cast<const int8_t*>(row), scale, scale + groups, sums, sums + groups};
}

// A row rounded to bf16: an even number of elements, the last one zero when K is odd.
inline constexpr int kRoundedGroupBytes = kGroup * 2;

// Each replaces the entries that its instruction set serves better. In this order:
void AddAvx2Linear(LinearKernels& kernels);        // all of them: AVX2, FMA, F16C
void AddAvx512Linear(LinearKernels& kernels);      // f32, f16, bf16: AVX-512 F, BW, DQ, VL
void AddAvx512VnniLinear(LinearKernels& kernels);  // quantised forms
void AddAvx512Bf16Linear(LinearKernels& kernels);  // bf16
void AddAmxLinear(LinearKernels& kernels);         // bf16 and quantised forms

}  // namespace spry
