// linear for AMX: bf16 and quantised weights, whose products are all of bf16. An element is one
// chain of tile products (tiles.h), K ascending by 32, whatever the number of rows.

#include "device/cpu/amx/tiles.h"
#include "device/cpu/amx/unpack.h"
#include "device/cpu/simd/linear_tile.h"

namespace spry {
namespace {

// Rows are cut into blocks that take two tiles of rows by the two of a panel's columns, four sums
// of products at a time; up to 16 rows are one tile of rows. K is cut into runs, whose weights stay
// in the first cache, as tiles, while all blocks pass; the sums of a block rest in memory between
// runs. Where the rows are too long for the second cache, some panels pass run by run, so that a
// run's part of the rows stays there for all of them.
constexpr int kBlockRows = 2 * kTileRows;
constexpr int kRunGroups = 9;    // with a block's rows and sums, 40 KiB
constexpr int kChunkBlocks = 8;  // 256 rows: x and sums stay in the second cache, 16 are slower
constexpr int kTogether = 8;     // panels, of rows longer than kLongRow
constexpr int64_t kLongRow = 2048;
constexpr int kSumBytes = kPanelRows * 4;
constexpr int kTileStride = kPairBytes;
static_assert(kTileGroupBytes == kTileRows * kTileStride && kRunGroups <= 16);

struct Scratch {
  alignas(64) std::byte weights[kRunGroups * kTileGroupBytes];
  float sums[kTogether][kChunkBlocks][kBlockRows][kPanelRows];
};
static_assert(sizeof(Scratch) <= kLinearScratchBytes);

// The tile registers:
//   0, 1   sums of the block's first rows, by the panel's columns 0..15 and 16..31
//   2, 3   sums of its other rows
//   4, 5   x of those rows
//   6, 7   weights of those columns
TileShapes ShapesFor(int rows0, int rows1) {
  TileShapes shapes;
  for (const int tile : {0, 1, 4}) shapes.Set(tile, rows0, kTileBytes);
  if (rows1 > 0) {
    for (const int tile : {2, 3, 5}) shapes.Set(tile, rows1, kTileBytes);
  }
  for (const int tile : {6, 7}) shapes.Set(tile, kTileRows, kTileBytes);
  return shapes;
}

// The groups of one run as tiles of B. Plain panels are tiles as they are, but for the last k.
template <WeightForm kForm>
struct RunWeights {
  const std::byte* panel;
  int64_t k;
  int64_t first;  // group
  std::byte* unpacked;
  int64_t place_mask;  // of a group's number in the run: one block alone needs two places only
  __m512h unit_log2;

  SPRY_INLINE bool Plain(int64_t g) const {
    return kForm == WeightForm::kBF16 && (g + 1) * kGroup <= k;
  }
  SPRY_INLINE std::byte* Unpacked(int64_t g) const {
    return unpacked + ((g - first) & place_mask) * kTileGroupBytes;
  }
  SPRY_INLINE const std::byte* Tiles(int64_t g) const {
    return Plain(g) ? panel + g * kTileGroupBytes : Unpacked(g);
  }
  SPRY_INLINE void Unpack(int64_t g) const {
    if constexpr (kForm != WeightForm::kBF16) {
      UnpackGroup<kForm>(panel, g, unit_log2, Unpacked(g));
    } else if (Plain(g)) {
      Prefetch(panel + g * kTileGroupBytes, kTileGroupBytes);
    } else {
      const int64_t bytes = (k - g * kGroup + 1) / 2 * kPairBytes;
      memcpy(Unpacked(g), panel + g * kTileGroupBytes, bytes);
      memset(Unpacked(g) + bytes, 0, kTileGroupBytes - bytes);
    }
  }
};

// A block's rows of x and its sums.
struct Block {
  const std::byte* x;
  int64_t x_stride;
  int rows0;  // of the first tile of rows
  float* sums;
  // Weights to fetch into the second cache, which the first block of the next run will want.
  const std::byte* ahead;
  int64_t ahead_bytes;  // for each group
};

// Continues the sums of a block by the groups [first, end) of a run, and unpacks them where no
// block has done it before.
template <WeightForm kForm, bool kTwo, bool kUnpack>
SPRY_INLINE void MultiplyRun(const RunWeights<kForm>& weights, int64_t end, const Block& block) {
  float* sums1 = block.sums + block.rows0 * kPanelRows;
  if (weights.first == 0) {
    TileZero<0>();
    TileZero<1>();
    if (kTwo) TileZero<2>();
    if (kTwo) TileZero<3>();
  } else {
    TileLoad<0>(block.sums, kSumBytes);
    TileLoad<1>(block.sums + kTileRows, kSumBytes);
    if (kTwo) TileLoad<2>(sums1, kSumBytes);
    if (kTwo) TileLoad<3>(sums1 + kTileRows, kSumBytes);
  }
  // A group ahead, for a load of a tile waits until what was stored there is in the cache.
  if (kUnpack) weights.Unpack(weights.first);
  for (int64_t g = weights.first; g < end; ++g) {
    if (kUnpack && g + 1 < end) weights.Unpack(g + 1);
    const std::byte* ahead = block.ahead + (g - weights.first) * block.ahead_bytes;
    for (int64_t i = 0; i < block.ahead_bytes; i += 64) __builtin_prefetch(ahead + i, 0, 2);
    const std::byte* tiles = weights.Tiles(g);
    const std::byte* x = block.x + g * kTileBytes;
    TileLoad<4>(x, block.x_stride);
    TileLoad<6>(tiles, kTileStride);
    TileProduct<0, 4, 6>();
    TileLoad<7>(tiles + kTileBytes, kTileStride);
    TileProduct<1, 4, 7>();
    if (!kTwo) continue;
    TileLoad<5>(x + block.rows0 * block.x_stride, block.x_stride);
    TileProduct<2, 5, 6>();
    TileProduct<3, 5, 7>();
  }
  TileStore<0>(block.sums, kSumBytes);
  TileStore<1>(block.sums + kTileRows, kSumBytes);
  if (kTwo) TileStore<2>(sums1, kSumBytes);
  if (kTwo) TileStore<3>(sums1 + kTileRows, kSumBytes);
}

// y of some rows; what a weight's elements and activations were multiplied by is taken back.
void StoreSums(LinearTile tile, const float* sums, int64_t rows, float factor) {
  const __m512 back = _mm512_set1_ps(factor);
  for (int64_t r = 0; r < rows; ++r, sums += kPanelRows) {
    __m512 row[1][2] = {{_mm512_mul_ps(_mm512_load_ps(sums), back),
                         _mm512_mul_ps(_mm512_load_ps(sums + kTileRows), back)}};
    StoreTile<Avx512, 1, 2>(tile, 0, row);
    tile.y += tile.y_stride;
    if (tile.residual != nullptr) tile.residual += tile.residual_stride;
  }
}

struct Units {
  int weight_log2 = 0;
  float back = 1.0f;
};
template <WeightForm kForm>
Units UnitsFor(float largest_weight) {
  if constexpr (!IsQuantizedForm(kForm)) return {};
  if (!(largest_weight <= 0x1p60f)) return {0, __builtin_nanf("")};
  const int unit = UnitLog2(largest_weight);
  return {unit, Exp2i(-kHalfToBf16Log2 - kActivationLog2 - unit)};
}

// Rows are spread over the blocks so that each has as many: the last one begins among the rows of
// the one before where they do not come out even.
struct Blocks {
  int64_t count;
  int64_t rows;  // of a block
  int64_t total;

  SPRY_INLINE int64_t Begin(int64_t i) const {
    const int64_t begin = i * rows;
    return begin + rows <= total ? begin : total - rows;
  }
};

// A run's weights for all blocks.
template <WeightForm kForm, bool kTwo>
void MultiplyBlocks(const PanelRun& run, int64_t panel, int64_t first_row, const Blocks& blocks,
                    const RunWeights<kForm>& weights, int64_t end, const std::byte* next,
                    float (&sums)[kChunkBlocks][kBlockRows][kPanelRows], float back) {
  const int64_t groups = (run.first.k + kGroup - 1) / kGroup;
  const int rows0 = static_cast<int>(kTwo ? (blocks.rows + 1) / 2 : blocks.rows);
  for (int64_t b = 0; b < blocks.count; ++b) {
    const LinearTile tile = TileAt(run, panel, first_row + blocks.Begin(b));
    Block block = {tile.x, tile.x_stride, rows0, sums[b][0], nullptr, 0};
    if (b > 0) {
      // As many bytes as the run's own, give or take a line.
      block.ahead_bytes = run.panel_bytes / (groups * (blocks.count - 1));
      block.ahead = next + (b - 1) * (end - weights.first) * block.ahead_bytes;
    }
    if (b == 0) {
      MultiplyRun<kForm, kTwo, true>(weights, end, block);
    } else {
      MultiplyRun<kForm, kTwo, false>(weights, end, block);
    }
    if (end < groups) continue;
    // No row is stored twice: y may be where its residual was.
    const int64_t stored = b * blocks.rows - blocks.Begin(b);
    StoreSums(TileAt(run, panel, first_row + b * blocks.rows), sums[b][stored],
              blocks.rows - stored, back);
  }
}

template <WeightForm kForm, bool kTwo>
void MultiplyPanels(const PanelRun& run, int64_t first_panel, int64_t num_panels, int64_t first_row,
                    const Blocks& blocks, const Units& units) {
  Scratch& scratch = *reinterpret_cast<Scratch*>(run.scratch);
  const int64_t k = run.first.k;
  const int64_t groups = (k + kGroup - 1) / kGroup;
  // One block alone comes back to no weights.
  const int64_t runs = blocks.count == 1 ? 1 : (groups + kRunGroups - 1) / kRunGroups;
  const std::byte* panels = run.first.panel + first_panel * run.panel_bytes;
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t end = groups * (i + 1) / runs;
    for (int64_t p = 0; p < num_panels; ++p) {
      const RunWeights<kForm> weights = {
          .panel = panels + p * run.panel_bytes,
          .k = k,
          .first = groups * i / runs,
          .unpacked = scratch.weights,
          .place_mask = blocks.count == 1 ? 1 : 15,
          .unit_log2 = _mm512_set1_ph(static_cast<_Float16>(units.weight_log2))};
      const bool is_last = p + 1 == num_panels;
      const std::byte* next = (is_last ? panels : weights.panel + run.panel_bytes) +
                              run.panel_bytes * (is_last ? end : weights.first) / groups;
      MultiplyBlocks<kForm, kTwo>(run, first_panel + p, first_row, blocks, weights, end, next,
                                  scratch.sums[p], units.back);
    }
  }
}

template <WeightForm kForm>
void Multiply(const PanelRun& run) {
  const Units units = UnitsFor<kForm>(run.largest_weight);
  constexpr int64_t kChunkRows = kChunkBlocks * kBlockRows;
  for (int64_t row = 0; row < run.rows; row += kChunkRows) {
    const int64_t rows = run.rows - row < kChunkRows ? run.rows - row : kChunkRows;
    const int64_t count = (rows + kBlockRows - 1) / kBlockRows;
    const Blocks blocks = {count, (rows + count - 1) / count, rows};
    const bool two = blocks.rows > kTileRows;
    const int rows0 = static_cast<int>(two ? (blocks.rows + 1) / 2 : blocks.rows);
    const TileShapes shapes = ShapesFor(rows0, static_cast<int>(blocks.rows) - rows0);
    const TileScope tiles(shapes);
    const int64_t together = run.first.k > kLongRow && count > 1 ? kTogether : 1;
    for (int64_t panel = 0; panel < run.num_panels(); panel += together) {
      const int64_t left = run.num_panels() - panel;
      const int64_t panels = left < together ? left : together;
      if (two) {
        MultiplyPanels<kForm, true>(run, panel, panels, row, blocks, units);
      } else {
        MultiplyPanels<kForm, false>(run, panel, panels, row, blocks, units);
      }
    }
  }
}

// 32 elements to bf16 at a time; zeros after the last. For codes, each four k, k + 1, k + 2, k + 3
// as k, k + 2, k + 1, k + 3, and multiplied as unpack.h says.
template <bool kForCodes>
void PrepareRow(const float* x, int64_t k, std::byte* row) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  2,  1,  3,  4,  6,  5,  7,  8,  10, 9,
                                                      11, 12, 14, 13, 15, 16, 18, 17, 19, 20, 22,
                                                      21, 23, 24, 26, 25, 27, 28, 30, 29, 31};
  const auto load = [&](int64_t at) __attribute__((always_inline)) {
    const int64_t count = k - at;
    if (count >= 16) return _mm512_loadu_ps(x + at);
    return count > 0 ? Avx512::LoadPart(x + at, count) : _mm512_setzero_ps();
  };
  for (int64_t i = 0; i < k; i += kGroup, row += kTileBytes) {
    __m512 low = load(i), high = load(i + 16);
    if (kForCodes) {
      const __m512 unit = _mm512_set1_ps(Exp2i(kActivationLog2));
      low = _mm512_mul_ps(low, unit);
      high = _mm512_mul_ps(high, unit);
    }
    __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    if (kForCodes) rounded = _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), rounded);
    _mm512_storeu_si512(row, rounded);
  }
}

// Infinity where a scale is no finite number. Magnitudes are compared as bits, so that a NaN is the
// largest of all.
template <WeightForm kForm>
float LargestOfPanel(const std::byte* panel, int64_t k) {
  __m512i largest = _mm512_setzero_si512();
  for (int64_t g = 0; g < k / kGroup; ++g) {
    const std::byte* super = SuperAt<kForm>(panel, g);
    const std::byte* group = GroupAt<kForm>(panel, g);
    for (int column = 0; column < kPanelRows; column += Avx512::kLanes) {
      const __m512 first = LargestOfPart<kForm, 0>(super, group, column);
      largest = _mm512_max_epi32(largest, _mm512_castps_si512(first));
      if constexpr (FactsOf(kForm).scale_group < kGroup) {
        const __m512 second = LargestOfPart<kForm, 1>(super, group, column);
        largest = _mm512_max_epi32(largest, _mm512_castps_si512(second));
      }
    }
  }
  constexpr int32_t kInfinity = 0x7f800000;
  const int32_t most = _mm512_reduce_max_epi32(largest);
  const int32_t bits = most < kInfinity ? most : kInfinity;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

template <WeightForm kForm>
void Set(LinearKernels& kernels) {
  FormKernel& kernel = kernels.forms[static_cast<int>(kForm)];
  kernel = {.multiply = Multiply<kForm>, .rows = {PrepareRow<IsQuantizedForm(kForm)>, kTileBytes}};
  if constexpr (IsQuantizedForm(kForm)) kernel.largest_weight = LargestOfPanel<kForm>;
}

}  // namespace

void AddAmxLinear(LinearKernels& kernels) {
  Set<WeightForm::kBF16>(kernels);
  Set<WeightForm::kQ8_0>(kernels);
  Set<WeightForm::kQ4_0>(kernels);
  Set<WeightForm::kQ4_1>(kernels);
  Set<WeightForm::kQ5_0>(kernels);
  Set<WeightForm::kQ5_1>(kernels);
  Set<WeightForm::kQ2_K>(kernels);
  Set<WeightForm::kQ3_K>(kernels);
  Set<WeightForm::kQ4_K>(kernels);
  Set<WeightForm::kQ5_K>(kernels);
  Set<WeightForm::kQ6_K>(kernels);
  Set<WeightForm::kIQ4_NL>(kernels);
  Set<WeightForm::kIQ4_XS>(kernels);
}

}  // namespace spry
