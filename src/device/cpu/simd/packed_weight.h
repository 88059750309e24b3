// How linear weights lie in memory after repacking. The same bytes serve every instruction set.
//
// A weight [N, K] is cut into panels of 32 output rows (the last one padded with zeros). A panel is
// K-major, so that a vector lane is an output row and the sum over K runs down the lane:
//   kF32    for each k: 32 floats
//   kF16    for each k: 32 halves
//   kBF16   for each pair of k: 32 x (w[2j], w[2j + 1]); an odd K is padded with zero
//   kQ8_0   for each group of 32 k: 8 x 32 x 4 bytes (k = 4v .. 4v + 3), each 128 + q; 32 f16
//   scales kQ4_0   for each group of 32 k: 4 x 32 x 4 bytes (low nibbles k = 4v .., high 16 + 4v
//   ..), each
//           0..15; 32 f16 scales
//   kQ4_1   as kQ4_0, then 32 f16 minima
// Scales and minima stay f16 as in the file, so that no form is larger than the file but for
// padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace spry {

enum class WeightForm : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1 };
inline constexpr int kNumWeightForms = 6;

inline constexpr int kPanelRows = 32;
inline constexpr int kGroup = 32;  // k of a quantised group

constexpr bool IsQuantizedForm(WeightForm form) { return form >= WeightForm::kQ8_0; }

// Bytes of a group's quants, and of the group with scales and minima.
constexpr int GroupQuantBytes(WeightForm form) {
  return kPanelRows * kGroup / (form == WeightForm::kQ8_0 ? 1 : 2);
}
constexpr int GroupBytes(WeightForm form) {
  return GroupQuantBytes(form) + kPanelRows * (form == WeightForm::kQ4_1 ? 4 : 2);
}

// The form of a weight of `dtype` in a program that computes in `compute`.
WeightForm FormOf(DType dtype, DType compute);

inline int64_t NumPanels(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }
int64_t PanelBytes(WeightForm form, int64_t columns);

// A weight as the checkpoint has it: row-major [rows, columns] of `dtype`.
struct RawWeight {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  const std::byte* data = nullptr;
};

// Repacks one panel; writes PanelBytes(form, columns).
void PackPanel(const RawWeight& weight, WeightForm form, int64_t panel, std::byte* out);

}  // namespace spry
