#include "device/cpu/simd/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "tensor/block_codes.h"
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

// Blocks of 32 whose codes lie in the file as in a panel: moves their 4-byte words (`kWords` of
// them after a `kHeader` of scale and minimum) to word v * 32 + row. `flip` turns signed bytes into
// biased ones.
template <int kHeader, int kWords>
void MoveGroups(const PanelSource& source, int64_t groups, uint32_t flip, std::byte* out) {
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

// 32 codes of less than 7 bits, four in a word, to `bits` words that lie a panel row apart.
void PackPlanes(const uint8_t* codes, int bits, std::byte* out) {
  uint32_t words[kGroup / 4];
  std::memcpy(words, codes, sizeof(words));
  const auto put = [&out](uint32_t word) {
    std::memcpy(out, &word, 4);
    out += kRows * 4;
  };
  if ((bits & 4) != 0) {
    for (int v = 0; v < 4; ++v) {
      put((words[v] & 0x0f0f0f0fu) | (words[4 + v] & 0x0f0f0f0fu) << 4);
    }
    for (uint32_t& word : words) word = (word >> 4) & 0x0f0f0f0fu;
  }
  if ((bits & 2) != 0) {
    for (int h = 0; h < 8; h += 4) {
      uint32_t plane = 0;
      for (int v = 0; v < 4; ++v) plane |= (words[h + v] & 0x03030303u) << 2 * v;
      put(plane);
    }
    for (uint32_t& word : words) word = (word >> 2) & 0x3f3f3f3fu;
  }
  if ((bits & 1) != 0) {
    uint32_t plane = 0;
    for (int v = 0; v < 8; ++v) plane |= (words[v] & 0x01010101u) << v;
    put(plane);
  }
}

// One block of row `r`, whose groups begin at `out`, after `super`.
void PackBlock(const BlockCodes& block, DType dtype, WeightForm form, int r, std::byte* super,
               std::byte* out) {
  const QuantFacts facts = FactsOf(form);
  const int elements = Traits(dtype).block_elements;
  uint8_t codes[kMaxBlockElements];
  const int bias = facts.table ? 0 : facts.bias;  // the table has it already
  for (int i = 0; i < elements; ++i) codes[i] = static_cast<uint8_t>(block.codes[i] + bias);
  const int scales = kGroup / facts.scale_group;  // of a group
  for (int g = 0; g < elements / kGroup; ++g, out += GroupBytes(form)) {
    PackPlanes(codes + g * kGroup, facts.bits, out + r * 4);
    std::byte* at = out + GroupQuantBytes(form);
    if (!facts.scaled_scales) {
      std::memcpy(at + 2 * r, &block.d, 2);
      if (facts.minimum) std::memcpy(at + 2 * (kRows + r), &block.d_min, 2);
      continue;
    }
    for (int s = 0; s < scales; ++s) {
      at[s * kRows + r] = static_cast<std::byte>(block.scales[g * scales + s]);
      if (facts.minimum) {
        at[(scales + s) * kRows + r] = static_cast<std::byte>(block.mins[g * scales + s]);
      }
    }
  }
  if (!facts.scaled_scales) return;
  std::memcpy(super + 2 * r, &block.d, 2);
  if (facts.minimum) std::memcpy(super + 2 * (kRows + r), &block.d_min, 2);
}

// All block types whose codes are split into planes or have scales of scales.
void PackGroups(const RawWeight& weight, WeightForm form, const PanelSource& source,
                std::byte* out) {
  const DTypeTraits& traits = Traits(weight.dtype);
  const int64_t blocks = weight.columns / traits.block_elements;
  const int64_t bytes = PanelBytes(form, traits.block_elements);
  std::memset(out, 0, static_cast<size_t>(blocks * bytes));
  BlockCodes block;
  for (int64_t b = 0; b < blocks; ++b, out += bytes) {
    for (int r = 0; r < source.rows; ++r) {
      UnpackBlock(weight.dtype, source.data + r * source.row_bytes + b * traits.block_bytes, block);
      PackBlock(block, weight.dtype, form, r, out, out + SuperBytes(form));
    }
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
    case DType::kQ5_0: return WeightForm::kQ5_0;
    case DType::kQ5_1: return WeightForm::kQ5_1;
    case DType::kQ8_0: return WeightForm::kQ8_0;
    case DType::kQ2_K: return WeightForm::kQ2_K;
    case DType::kQ3_K: return WeightForm::kQ3_K;
    case DType::kQ4_K: return WeightForm::kQ4_K;
    case DType::kQ5_K: return WeightForm::kQ5_K;
    case DType::kQ6_K: return WeightForm::kQ6_K;
    case DType::kIQ4_NL: return WeightForm::kIQ4_NL;
    case DType::kIQ4_XS: return WeightForm::kIQ4_XS;
    default: return compute == DType::kF16 ? WeightForm::kF16 : WeightForm::kBF16;
  }
}

int64_t PanelBytes(WeightForm form, int64_t columns) {
  switch (form) {
    case WeightForm::kF32: return columns * kRows * 4;
    case WeightForm::kF16: return columns * kRows * 2;
    case WeightForm::kBF16: return (columns + 1) / 2 * kRows * 4;
    default:
      return columns / kGroup * GroupBytes(form) +
             columns / (kGroup * kSuperGroups) * SuperBytes(form);
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
    case WeightForm::kQ8_0: return MoveGroups<2, 8>(source, groups, 0x80808080u, out);
    case WeightForm::kQ4_0:
    case WeightForm::kIQ4_NL: return MoveGroups<2, 4>(source, groups, 0, out);
    case WeightForm::kQ4_1: return MoveGroups<4, 4>(source, groups, 0, out);
    default: return PackGroups(weight, form, source, out);
  }
}

}  // namespace spry
