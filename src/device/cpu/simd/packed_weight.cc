#include "device/cpu/simd/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tensor/dequantize.h"
#include "tensor/float16.h"

namespace spry {
namespace {

constexpr int kRows = kPanelRows;

// The rows of one panel; those beyond the weight's last row do not exist.
struct PanelSource {
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  int rows = 0;
};

PanelSource SourceOf(const RawWeight& weight, int64_t panel) {
  const int64_t row_bytes = RowBytes(weight.dtype, weight.columns);
  const int64_t first = panel * kRows;
  return {.data = weight.data + first * row_bytes,
          .row_bytes = row_bytes,
          .rows = static_cast<int>(std::min<int64_t>(kRows, weight.rows - first))};
}

// Both quantised layouts move 4-byte pieces of a block (`kWords` of them after a `kHeader` of scale
// and minimum) to word v * 32 + row. `flip` turns signed bytes into biased ones.
template <int kHeader, int kWords>
void PackGroups(const PanelSource& source, int64_t groups, uint32_t flip, std::byte* out) {
  constexpr int kBlockBytes = kHeader + 4 * kWords;
  constexpr int kScaleBytes = kRows * kHeader;
  for (int64_t g = 0; g < groups; ++g, out += kRows * 4 * kWords + kScaleBytes) {
    uint16_t scales[kHeader / 2][kRows];
    for (int r = 0; r < source.rows; ++r) {
      const std::byte* block = source.data + r * source.row_bytes + g * kBlockBytes;
      uint32_t words[kWords];
      std::memcpy(words, block + kHeader, sizeof(words));
      for (int v = 0; v < kWords; ++v) {
        words[v] ^= flip;
        std::memcpy(out + (v * kRows + r) * 4, &words[v], 4);
      }
      for (int s = 0; s < kHeader / 2; ++s) std::memcpy(&scales[s][r], block + 2 * s, 2);
    }
    for (int r = source.rows; r < kRows; ++r) {
      for (int v = 0; v < kWords; ++v) std::memset(out + (v * kRows + r) * 4, 0, 4);
      for (int s = 0; s < kHeader / 2; ++s) scales[s][r] = 0;
    }
    std::memcpy(out + kRows * 4 * kWords, scales, kScaleBytes);
  }
}

// Narrowing of a float to an element of a plain form.
template <typename T>
T Narrow(float value, WeightForm form);
template <>
float Narrow<float>(float value, WeightForm) {
  return value;
}
template <>
uint16_t Narrow<uint16_t>(float value, WeightForm form) {
  return form == WeightForm::kF16 ? FloatToF16(value) : FloatToBf16(value);
}

// Elements of `kStep` neighbouring k lie together. Works in blocks of columns so that the strided
// writes of a block stay in the first cache.
template <typename T, int kStep>
void PackPlain(const RawWeight& weight, WeightForm form, const PanelSource& source, T* out) {
  constexpr int64_t kBlock = 256;  // columns; whole blocks of every dtype
  const DTypeTraits& traits = Traits(weight.dtype);
  const bool same = (weight.dtype == DType::kF16 && form == WeightForm::kF16) ||
                    (weight.dtype == DType::kBF16 && form == WeightForm::kBF16);
  const int64_t padded = (weight.columns + kStep - 1) / kStep * kStep;
  std::memset(out, 0, sizeof(T) * padded * kRows);
  for (int64_t begin = 0; begin < weight.columns; begin += kBlock) {
    const int64_t count = std::min(kBlock, weight.columns - begin);
    for (int r = 0; r < source.rows; ++r) {
      const std::byte* row =
          source.data + r * source.row_bytes + begin / traits.block_elements * traits.block_bytes;
      T elements[kBlock];
      if (same) {
        std::memcpy(elements, row, sizeof(T) * count);
      } else {
        float values[kBlock];
        DequantizeRow(weight.dtype, row, count, values);
        for (int64_t i = 0; i < count; ++i) elements[i] = Narrow<T>(values[i], form);
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t k = begin + i;
        out[(k / kStep * kRows + r) * kStep + k % kStep] = elements[i];
      }
    }
  }
}

}  // namespace

WeightForm FormOf(DType dtype, DType compute) {
  if (compute == DType::kF32) return WeightForm::kF32;
  switch (dtype) {
    case DType::kQ4_0: return WeightForm::kQ4_0;
    case DType::kQ4_1: return WeightForm::kQ4_1;
    case DType::kQ8_0: return WeightForm::kQ8_0;
    default: break;
  }
  // Neither f16 nor bf16 holds d * scale * code without rounding.
  if (IsQuantized(dtype)) return WeightForm::kF32;
  return compute == DType::kF16 ? WeightForm::kF16 : WeightForm::kBF16;
}

int64_t PanelBytes(WeightForm form, int64_t columns) {
  switch (form) {
    case WeightForm::kF32: return columns * kRows * 4;
    case WeightForm::kF16: return columns * kRows * 2;
    case WeightForm::kBF16: return (columns + 1) / 2 * kRows * 4;
    default: return columns / kGroup * GroupBytes(form);
  }
}

void PackPanel(const RawWeight& weight, WeightForm form, int64_t panel, std::byte* out) {
  const PanelSource source = SourceOf(weight, panel);
  const int64_t groups = weight.columns / kGroup;
  switch (form) {
    case WeightForm::kF32:
      return PackPlain<float, 1>(weight, form, source, reinterpret_cast<float*>(out));
    case WeightForm::kF16:
      return PackPlain<uint16_t, 1>(weight, form, source, reinterpret_cast<uint16_t*>(out));
    case WeightForm::kBF16:
      return PackPlain<uint16_t, 2>(weight, form, source, reinterpret_cast<uint16_t*>(out));
    case WeightForm::kQ8_0: return PackGroups<2, 8>(source, groups, 0x80808080u, out);
    case WeightForm::kQ4_0: return PackGroups<2, 4>(source, groups, 0, out);
    case WeightForm::kQ4_1: return PackGroups<4, 4>(source, groups, 0, out);
  }
}

}  // namespace spry
