// Layouts, as in ggml (f16 is two bytes; d first unless the list says otherwise):
//   Q4_0    d, 4 bits                          code - 8
//   Q4_1    d, minimum, 4 bits
//   Q5_0    d, bit 4, 4 bits                   code - 16
//   Q5_1    d, minimum, bit 4, 4 bits
//   Q8_0    d, signed bytes
//   IQ4_NL  d, 4 bits                          a table of 16 values
//   Q2_K    16 x (4-bit scale, 4-bit minimum), 2 bits, d, d_min
//   Q3_K    bit 2, 2 bits, 16 x 6-bit scale - 32, d        code - 4
//   Q4_K    d, d_min, 8 x (6-bit scale, 6-bit minimum), 4 bits
//   Q5_K    as Q4_K, then bit 4, 4 bits
//   Q6_K    4 bits, bits 4 and 5, 16 x 8-bit scale, d      code - 32
//   IQ4_XS  d, high 2 bits of 8 scales, their low 4 bits, 4 bits; scale - 32; IQ4_NL's table
#include "tensor/block_codes.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace spry {
namespace {

uint16_t Load16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return bits;
}

int Byte(const std::byte* p) { return static_cast<int>(*p); }

// Some bits of all codes: fields of `kBits` in runs of `kRun` bytes. The lowest fields of a run
// belong to its first kRun elements, the next fields to the next kRun elements, and so on.
template <int kBits, int kRun>
void AddBits(const std::byte* from, int elements, int shift, int8_t* codes) {
  constexpr int kMask = (1 << kBits) - 1;
  for (int8_t* end = codes + elements; codes != end; from += kRun) {
    for (int bit = 0; bit < 8; bit += kBits, codes += kRun) {
      for (int i = 0; i < kRun; ++i) {
        codes[i] = static_cast<int8_t>(codes[i] | ((Byte(from + i) >> bit) & kMask) << shift);
      }
    }
  }
}

void Shift(int by, int count, int8_t* values) {
  for (int i = 0; i < count; ++i) values[i] = static_cast<int8_t>(values[i] + by);
}

// Eight scales and eight minima of 6 bits. Bytes 0..3 and 4..7 hold the first four of each; their
// upper two bits, with a nibble each of bytes 8..11, are the last four.
void UnpackScalesAndMins(const std::byte* from, BlockCodes& out) {
  for (int i = 0; i < 4; ++i) {
    const int scale = Byte(from + i), min = Byte(from + 4 + i), rest = Byte(from + 8 + i);
    out.scales[i] = static_cast<int8_t>(scale & 63);
    out.mins[i] = static_cast<int8_t>(min & 63);
    out.scales[4 + i] = static_cast<int8_t>((rest & 15) | (scale >> 6) << 4);
    out.mins[4 + i] = static_cast<int8_t>(rest >> 4 | (min >> 6) << 4);
  }
}

// Blocks of 32 that begin with a scale and, if `has_minimum`, a minimum to be added. Returns what
// follows.
const std::byte* UnpackHead(const std::byte* block, bool has_minimum, BlockCodes& out) {
  out.d = Load16(block);
  out.scales[0] = 1;
  out.d_min = has_minimum ? Load16(block + 2) : 0;
  out.mins[0] = has_minimum ? -1 : 0;
  return block + (has_minimum ? 4 : 2);
}

void Unpack4(const std::byte* block, bool has_minimum, BlockCodes& out) {
  AddBits<4, 16>(UnpackHead(block, has_minimum, out), 32, 0, out.codes);
}

void Unpack5(const std::byte* block, bool has_minimum, BlockCodes& out) {
  const std::byte* bits = UnpackHead(block, has_minimum, out);
  AddBits<1, 1>(bits, 32, 4, out.codes);
  AddBits<4, 16>(bits + 4, 32, 0, out.codes);
}

void UnpackQ2K(const std::byte* block, BlockCodes& out) {
  for (int i = 0; i < 16; ++i) {
    out.scales[i] = static_cast<int8_t>(Byte(block + i) & 15);
    out.mins[i] = static_cast<int8_t>(Byte(block + i) >> 4);
  }
  AddBits<2, 32>(block + 16, 256, 0, out.codes);
  out.d = Load16(block + 80);
  out.d_min = Load16(block + 82);
}

void UnpackQ3K(const std::byte* block, BlockCodes& out) {
  AddBits<1, 32>(block, 256, 2, out.codes);
  AddBits<2, 32>(block + 32, 256, 0, out.codes);
  Shift(-4, 256, out.codes);
  std::fill_n(out.scales, 16, int8_t{0});
  AddBits<4, 8>(block + 96, 16, 0, out.scales);
  AddBits<2, 4>(block + 104, 16, 4, out.scales);
  Shift(-32, 16, out.scales);
  out.d = Load16(block + 108);
}

void UnpackQ4K(const std::byte* block, BlockCodes& out) {
  out.d = Load16(block);
  out.d_min = Load16(block + 2);
  UnpackScalesAndMins(block + 4, out);
  AddBits<4, 32>(block + 16, 256, 0, out.codes);
}

void UnpackQ5K(const std::byte* block, BlockCodes& out) {
  out.d = Load16(block);
  out.d_min = Load16(block + 2);
  UnpackScalesAndMins(block + 4, out);
  AddBits<1, 32>(block + 16, 256, 4, out.codes);
  AddBits<4, 32>(block + 48, 256, 0, out.codes);
}

void UnpackQ6K(const std::byte* block, BlockCodes& out) {
  AddBits<4, 64>(block, 256, 0, out.codes);
  AddBits<2, 32>(block + 128, 256, 4, out.codes);
  Shift(-32, 256, out.codes);
  std::memcpy(out.scales, block + 192, 16);
  out.d = Load16(block + 208);
}

void UnpackIq4Xs(const std::byte* block, BlockCodes& out) {
  out.d = Load16(block);
  std::fill_n(out.scales, 8, int8_t{0});
  AddBits<2, 1>(block + 2, 8, 4, out.scales);
  AddBits<4, 1>(block + 4, 8, 0, out.scales);
  Shift(-32, 8, out.scales);
  AddBits<4, 16>(block + 8, 256, 0, out.codes);
}

}  // namespace

int GroupElements(DType dtype) {
  return dtype == DType::kQ2_K || dtype == DType::kQ3_K || dtype == DType::kQ6_K ? 16 : 32;
}

void UnpackBlock(DType dtype, const std::byte* block, BlockCodes& out) {
  const int elements = Traits(dtype).block_elements;
  if (dtype != DType::kQ8_0) std::memset(out.codes, 0, static_cast<size_t>(elements));
  out.d_min = 0;
  std::memset(out.mins, 0, static_cast<size_t>(elements / GroupElements(dtype)));
  switch (dtype) {
    case DType::kQ4_0: Unpack4(block, /*has_minimum=*/false, out); return Shift(-8, 32, out.codes);
    case DType::kQ4_1: return Unpack4(block, /*has_minimum=*/true, out);
    case DType::kQ5_0: Unpack5(block, /*has_minimum=*/false, out); return Shift(-16, 32, out.codes);
    case DType::kQ5_1: return Unpack5(block, /*has_minimum=*/true, out);
    case DType::kQ8_0:
      std::memcpy(out.codes, UnpackHead(block, /*has_minimum=*/false, out), 32);
      return;
    case DType::kIQ4_NL: return Unpack4(block, /*has_minimum=*/false, out);
    case DType::kQ2_K: return UnpackQ2K(block, out);
    case DType::kQ3_K: return UnpackQ3K(block, out);
    case DType::kQ4_K: return UnpackQ4K(block, out);
    case DType::kQ5_K: return UnpackQ5K(block, out);
    case DType::kQ6_K: return UnpackQ6K(block, out);
    case DType::kIQ4_XS: return UnpackIq4Xs(block, out);
    default: CHECK(false && "not a block type");
  }
}

}  // namespace spry
