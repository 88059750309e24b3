// How linear weights lie in memory after repacking. The same bytes serve every instruction set.
//
// A weight [N, K] is cut into panels of 32 output rows (the last one padded with zeros). A panel is
// K-major, so that a vector lane is an output row and the sum over K runs down the lane:
//   kF32    for each k: 32 floats
//   kF16    for each k: 32 halves
//   kBF16   for each pair of k: 32 x (w[2j], w[2j + 1]); an odd K is padded with zero
// Quantised forms: for each group of 32 k, the codes (unsigned, as many words of 4 bytes as a code
// has bits, each 32 x 4 bytes), then scales and minima.
//   8 bits  word v holds k = 4v .. 4v + 3, a byte each
//   fewer   the bits of a code are split into planes of 4, 2 and 1, lowest first:
//           4 bits: word v, low nibbles k = 4v .. 4v + 3, high nibbles k = 16 + 4v ..
//           2 bits: word h of 2, byte b, bits 2v and 2v + 1: k = 16h + 4v + b
//           1 bit:  a word, byte b, bit 4h + v: k = 16h + 4v + b
//   scales  32 f16, then 32 f16 minima if any; or, for types with scales of scales, 32 int8 for
//           each 16 or 32 k, then as many minima, and before every 8 groups 32 f16 that they are
//           multiplied by, and as many for the minima
// So a weight keeps the file's bits and no form is larger than the file but for padding and for the
// 4- and 6-bit scales of the K types, which become bytes (at most 4 %; Q2_K 19 %).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/cpu/simd/always_inline.h"
#include "tensor/dtype.h"

namespace spry {

// The quantised forms, from kQ8_0 on, are named after the types that they hold.
enum class WeightForm : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
};
inline constexpr int kNumWeightForms = 15;

inline constexpr int kPanelRows = 32;
inline constexpr int kGroup = 32;       // k of a group of codes, and of an activation's scale
inline constexpr int kSuperGroups = 8;  // groups that share the scale of their scales

constexpr bool IsQuantizedForm(WeightForm form) { return form >= WeightForm::kQ8_0; }

// w = scale * (code - bias), plus the minimum, or less it where scales are scaled. With `table`,
// code - bias is kIq4Values[code].
struct QuantFacts {
  int bits = 8;  // of a code: 8, or less than 7
  int bias = 0;
  int scale_group = 32;  // k that share a scale: 16 or 32
  bool minimum = false;
  bool scaled_scales = false;  // int8 times an f16 per kSuperGroups groups
  bool table = false;
};
constexpr QuantFacts FactsOf(WeightForm form) {
  switch (form) {
    case WeightForm::kQ8_0: return {.bits = 8, .bias = 128};
    case WeightForm::kQ4_0: return {.bits = 4, .bias = 8};
    case WeightForm::kQ4_1: return {.bits = 4, .minimum = true};
    case WeightForm::kQ5_0: return {.bits = 5, .bias = 16};
    case WeightForm::kQ5_1: return {.bits = 5, .minimum = true};
    case WeightForm::kQ2_K:
      return {.bits = 2, .scale_group = 16, .minimum = true, .scaled_scales = true};
    case WeightForm::kQ3_K: return {.bits = 3, .bias = 4, .scale_group = 16, .scaled_scales = true};
    case WeightForm::kQ4_K: return {.bits = 4, .minimum = true, .scaled_scales = true};
    case WeightForm::kQ5_K: return {.bits = 5, .minimum = true, .scaled_scales = true};
    case WeightForm::kQ6_K:
      return {.bits = 6, .bias = 32, .scale_group = 16, .scaled_scales = true};
    case WeightForm::kIQ4_NL: return {.bits = 4, .bias = 128, .table = true};
    case WeightForm::kIQ4_XS: return {.bits = 4, .bias = 128, .scaled_scales = true, .table = true};
    default: return {};
  }
}

// Bytes of a group's codes; of the group with scales and minima; of what comes before 8 groups.
constexpr int GroupQuantBytes(WeightForm form) { return kPanelRows * 4 * FactsOf(form).bits; }
constexpr int GroupBytes(WeightForm form) {
  const QuantFacts facts = FactsOf(form);
  const int scale_bytes = facts.scaled_scales ? kGroup / facts.scale_group : 2;
  return GroupQuantBytes(form) + kPanelRows * scale_bytes * (facts.minimum ? 2 : 1);
}
constexpr int SuperBytes(WeightForm form) {
  const QuantFacts facts = FactsOf(form);
  return facts.scaled_scales ? kPanelRows * (facts.minimum ? 4 : 2) : 0;
}

// The form of a weight of `dtype` in a program that computes in `compute`.
WeightForm FormOf(DType dtype, DType compute);

SPRY_INLINE int64_t NumPanels(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }
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
