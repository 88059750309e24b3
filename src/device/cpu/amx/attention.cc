// attention and write_kv on AMX, for bf16 caches whose sizes fit its tiles. A tile of sums is 16
// lines by 16 keys, or by 16 elements of the output, so 16 lines share every load.
//   scores   the query times scale (and log2 e, unless soft cap or alibi want natural scores),
//            rounded to bf16; products of 32 elements of D, ascending
//   weights  2^(score - max), rounded to bf16. Their sum is of the rounded ones, so that the mean
//            of equal values is that value; in 16 lanes by the position of a pair of keys
//   output   products of 16 keys, ascending, whatever the block size
// The keys of a segment are taken in runs of 128, so that scores stay in the first cache; what is
// known before a run is rescaled to the largest score up to and with it. Runs begin at multiples of
// 128, and a line's row of a product depends on no other row: a line has the same bits with any
// lines beside it.
//
// Products and vector instructions wait for each other: mixed finely they take the sum of their
// times (measured on a Sapphire Rapids class Xeon), so they come one after the other.
#include <cstring>
#include <utility>

#include "device/cpu/amx/tiles.h"
#include "device/cpu/simd/attention_tile.h"
#include "device/cpu/simd/vec_avx512.h"

namespace spry {
namespace {

constexpr int kLanes = Avx512::kLanes;  // keys of a tile
constexpr int kPair = 2 * kLanes;       // what a vector of bf16 holds
constexpr int kMaxHeadDim = 256;
constexpr int kRun = 128;
// Not a power of two, which would send a key's scores to a few sets of the cache.
constexpr int kRunStride = kRun + kLanes;
constexpr int kFewLines = 8;  // as rows of a tile of values: fewer make no product shorter
constexpr float kLn2 = 0.69314718056f;
static_assert(kMaxBlockLines == kTileRows);

// The tile registers: 0 to 3 are sums. Fewer at once would wait for each other.
constexpr int kSums = 4;
constexpr int kQueryTile = 4, kKeyTile = 5, kWeightTile = 6, kValueTile = 7;

// Of a block of up to `rows` lines. A product takes as long as the longer of its sides has rows.
TileShapes ShapesFor(int rows) {
  TileShapes shapes;
  for (int tile = 0; tile <= kQueryTile; ++tile) shapes.Set(tile, rows, kTileBytes);
  shapes.Set(kKeyTile, kTileRows, kTileBytes);
  shapes.Set(kWeightTile, rows, kLanes * 2);
  shapes.Set(kValueTile, kLanes / 2, kTileBytes);
  return shapes;
}

// Once a call: shapes take 40 ns to load, and no block overlaps the next one across it.
void Enter(int lines) {
  static const TileShapes kFew = ShapesFor(kFewLines), kMany = ShapesFor(kTileRows);
  _tile_loadconfig(lines <= kFewLines ? &kFew : &kMany);
}

void Leave() { _tile_release(); }

// do_tile(index as a constant) for the first T tiles.
template <int T, typename DoTile>
SPRY_INLINE void ForTiles(const DoTile& do_tile) {
  [&]<int... kTile>(std::integer_sequence<int, kTile...>) __attribute__((always_inline)) {
    (do_tile(std::integral_constant<int, kTile>()), ...);
  }
  (std::make_integer_sequence<int, T>());
}

// The block's lines while its keys are taken run by run. Rows of tiles beyond the lines hold
// anything: they meet no line.
struct Lines {
  alignas(64) uint16_t queries[kTileRows * kMaxHeadDim];
  alignas(64) float max[kTileRows];  // in units of log 2
  __m512 totals[kTileRows];          // of weights
  // Of a run:
  alignas(64) float scores[kTileRows][kRunStride];  // then weights, bf16, in each row's first half
  alignas(64) float rescale[kTileRows];             // of what was known before
  __mmask16 see = 0;                                // which lines see a key
};

// The keys [begin, begin + kRun) of the segment, in the tiles that some line sees.
struct Run {
  int64_t begin = 0;
  int64_t first_tile = 0;
  int64_t end_tile = 0;
};

Run RunOf(const AttentionBlock& block, int64_t begin) {
  const int64_t start = block.starts[0], count = block.counts[block.lines - 1];
  return {.begin = begin,
          .first_tile = (start > begin ? start : begin) / kLanes,
          .end_tile = (begin + kRun < count ? begin + kRun : count + kLanes - 1) / kLanes};
}

void Start(const AttentionBlock& block, float factor, Lines& lines) {
  // All at once: they lie far apart, and the loads below would wait for a few at a time.
  for (int l = 0; l < block.lines; ++l) {
    for (int64_t d = 0; d < block.head_dim; d += kLanes) __builtin_prefetch(block.queries[l] + d);
  }
  const __m512 by = _mm512_set1_ps(factor);
  for (int l = 0; l < block.lines; ++l) {
    lines.max[l] = -INFINITY;
    lines.totals[l] = _mm512_setzero_ps();
    const float* q = block.queries[l];
    for (int64_t d = 0; d < block.head_dim; d += kPair) {
      const __m512 low = _mm512_mul_ps(by, _mm512_loadu_ps(q + d));
      const __m512 high = _mm512_mul_ps(by, _mm512_loadu_ps(q + d + kLanes));
      _mm512_storeu_si512(lines.queries + l * block.head_dim + d,
                          (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
  }
}

// Few lines wait for memory, where the hardware does not foresee a block's end (without, 20 to 25
// us for a layer of three kv heads over 512 keys); many have their keys and values near.
SPRY_INLINE void Fetch(const AttentionBlock& block, const std::byte* p, int64_t bytes) {
  if (block.lines > kFewLines) return;
  for (int64_t i = 0; i < bytes; i += kTileBytes) __builtin_prefetch(p + i);
}

// The scores of T tiles of keys from `first` on. The values of these keys are fetched meanwhile.
template <int T>
SPRY_INLINE void ScoreTiles(const AttentionBlock& block, const Run& run, int64_t first,
                            Lines& lines) {
  const std::byte* const* keys = block.keys + first;
  const int64_t value_bytes =
      kLanes * block.v_head_dim * 2 / block.head_dim;  // by element of a key
  ForTiles<T>([](auto t) __attribute__((always_inline)) { TileZero<t>(); });
  for (int64_t d = 0; d < block.head_dim; d += kPair) {
    TileLoad<kQueryTile>(lines.queries + d, block.head_dim * 2);
    ForTiles<T>([&](auto t) __attribute__((always_inline)) {
      Fetch(block, block.values[first + t] + d * value_bytes, kPair * value_bytes);
      TileLoad<kKeyTile>(keys[t] + d * kLanes * 2, kTileBytes);
      TileProduct<t, kQueryTile, kKeyTile>();
    });
  }
  float* scores = lines.scores[0] + first * kLanes - run.begin;
  ForTiles<T>([&](auto t) __attribute__((always_inline)) {
    TileStore<t>(scores + t * kLanes, kRunStride * 4);
  });
}

void Score(const AttentionBlock& block, const Run& run, Lines& lines) {
  int64_t t = run.first_tile;
  for (; t + kSums <= run.end_tile; t += kSums) ScoreTiles<kSums>(block, run, t, lines);
  const int64_t left = run.end_tile - t;
  if (left == 3) ScoreTiles<3>(block, run, t, lines);
  if (left == 2) ScoreTiles<2>(block, run, t, lines);
  if (left == 1) ScoreTiles<1>(block, run, t, lines);
}

// 2^x for x <= 0: 2^floor(x) times a polynomial in the rest, off by at most 8.6e-5 of the result,
// a twentieth of what rounding to bf16 adds; 1 at 0. A NaN stays a NaN.
SPRY_INLINE __m512 Exp2(__m512 x) {
  const __m512 rest = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.0770670399f);
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(0.2276449949f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(0.6951167583f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);
}

// Of the kRun keys of a run, those that a line sees.
struct Seen {
  int64_t begin = 0;
  int64_t end = 0;

  bool Holds(int64_t first, int64_t last) const { return begin <= first && end >= last; }
  // Of the vector from `i` on.
  __mmask16 Lanes(int64_t i) const {
    const auto below = [i](int64_t key) {
      return (1u << (key < i ? 0 : key - i > kLanes ? kLanes : key - i)) - 1;
    };
    return static_cast<__mmask16>(below(end) & ~below(begin));
  }
};

SPRY_INLINE Seen SeenOf(const AttentionBlock& block, int line, const Run& run) {
  const int64_t begin = block.starts[line] - run.begin, end = block.counts[line] - run.begin;
  return {.begin = begin < 0 ? 0 : begin, .end = end > kRun ? kRun : end};
}

// Soft cap and alibi want natural scores.
void BendAll(const AttentionBlock& block, const Run& run, Lines& lines) {
  for (int l = 0; l < block.lines; ++l) {
    for (int64_t key = run.first_tile * kLanes; key < run.end_tile * kLanes; key += kLanes) {
      float* at = lines.scores[l] + key - run.begin;
      const __m512 score = BendScore<Avx512>(block, l, key, _mm512_loadu_ps(at));
      _mm512_storeu_ps(at, _mm512_mul_ps(score, _mm512_set1_ps(kLog2E)));
    }
  }
}

SPRY_INLINE float LargestScore(const float* scores, const Seen& seen) {
  const __m512 lowest = _mm512_set1_ps(-INFINITY);
  __m512 largest = lowest;
  // The largest so far is the second operand, which is what a comparison with a NaN gives.
  if (seen.Holds(0, kRun)) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRun; i += kLanes) {
      largest = _mm512_max_ps(_mm512_loadu_ps(scores + i), largest);
    }
  } else {
    for (int64_t i = seen.begin / kLanes * kLanes; i < seen.end; i += kLanes) {
      const __m512 some = _mm512_mask_loadu_ps(lowest, seen.Lanes(i), scores + i);
      largest = _mm512_max_ps(some, largest);
    }
  }
  return _mm512_reduce_max_ps(largest);
}

// Scores become weights, 0 where nothing is seen, in all pairs of tiles that hold [begin, end).
SPRY_INLINE __m512 Soften(float* scores, const Seen& seen, int64_t begin, int64_t end, float max,
                          __m512 total) {
  uint16_t* weights = reinterpret_cast<uint16_t*>(scores);
  const __m512 shift = _mm512_set1_ps(max);
  const __m512 lowest = _mm512_set1_ps(-INFINITY);
  const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
  const auto weigh = [&](int64_t i, __m512 low, __m512 high) __attribute__((always_inline)) {
    const __m512bh pair = _mm512_cvtne2ps_pbh(Exp2(high), Exp2(low));
    _mm512_storeu_si512(weights + i, (__m512i)pair);
    total = _mm512_dpbf16_ps(total, pair, ones);
  };
  const auto seen_pair = [&](int64_t i) __attribute__((always_inline)) {
    weigh(i, _mm512_sub_ps(_mm512_loadu_ps(scores + i), shift),
          _mm512_sub_ps(_mm512_loadu_ps(scores + i + kLanes), shift));
  };
  if (seen.Holds(0, kRun)) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRun; i += kPair) seen_pair(i);
    return total;
  }
  const auto masked = [&](int64_t i) __attribute__((always_inline)) {
    return _mm512_mask_sub_ps(lowest, seen.Lanes(i), _mm512_loadu_ps(scores + i), shift);
  };
  for (int64_t i = begin / kPair * kPair; i < end; i += kPair) {
    if (seen.Holds(i, i + kPair)) {
      seen_pair(i);
    } else if (i >= seen.end || i + kPair <= seen.begin) {
      _mm512_storeu_si512(weights + i, _mm512_setzero_si512());
    } else {
      weigh(i, masked(i), masked(i + kLanes));
    }
  }
  return total;
}

void SoftenAll(const AttentionBlock& block, const Run& run, Lines& lines) {
  alignas(64) float largest[kTileRows];
  _mm512_store_ps(largest, _mm512_set1_ps(-INFINITY));
  lines.see = 0;
  for (int l = 0; l < block.lines; ++l) {
    const Seen seen = SeenOf(block, l, run);
    if (seen.begin >= seen.end) continue;
    lines.see |= static_cast<__mmask16>(1u << l);
    largest[l] = LargestScore(lines.scores[l], seen);
  }
  const __m512 before = _mm512_load_ps(lines.max);
  const __m512 max = _mm512_max_ps(_mm512_load_ps(largest), before);
  const __m512 rescale = Exp2(_mm512_sub_ps(before, max));
  _mm512_store_ps(lines.max, max);
  _mm512_store_ps(lines.rescale, _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), lines.see, rescale));
  const int64_t begin = run.first_tile * kLanes - run.begin;
  const int64_t end = run.end_tile * kLanes - run.begin;
  for (int l = 0; l < block.lines; ++l) {
    const __m512 total = _mm512_mul_ps(lines.totals[l], _mm512_set1_ps(lines.rescale[l]));
    lines.totals[l] =
        Soften(lines.scores[l], SeenOf(block, l, run), begin, end, lines.max[l], total);
  }
}

// sums[line][C * 16] += weights x values of a tile, for the elements from `dim` on. Keys of the
// next run are fetched meanwhile.
template <int C>
SPRY_INLINE void AddTile(const AttentionBlock& block, const Run& run, int64_t tile,
                         const std::byte* values, int64_t dim, const Lines& lines) {
  const uint16_t* weights = reinterpret_cast<const uint16_t*>(lines.scores[0]);
  const int64_t ahead = tile + kRun / kLanes;
  if (dim == 0 && ahead * kLanes < block.counts[0]) {
    Fetch(block, block.keys[ahead], kLanes * block.head_dim * 2);
  }
  TileLoad<kWeightTile>(weights + tile * kLanes - run.begin, kRunStride * 4);
  ForTiles<C>([&](auto c) __attribute__((always_inline)) {
    TileLoad<kValueTile>(values + dim * 4 + c * kTileBytes, block.v_head_dim * 4);
    TileProduct<c, kWeightTile, kValueTile>();
  });
}

template <int C>
SPRY_INLINE void StoreSums(float* sums) {
  ForTiles<C>([&](auto c) __attribute__((always_inline)) {
    TileStore<c>(sums + c * kLanes, C * kTileBytes);
  });
}

// The values of a tile with zeros for all but the rows [begin, end).
void CopySeen(const std::byte* tile, int64_t v_head_dim, int64_t begin, int64_t end,
              std::byte* copy) {
  memcpy(copy, tile, kLanes * v_head_dim * 2);
  for (int64_t row = 0; row < kLanes; ++row) {
    if (row >= begin && row < end) continue;
    uint16_t* at = reinterpret_cast<uint16_t*>(copy) + row / 2 * v_head_dim * 2 + row % 2;
    for (int64_t d = 0; d < v_head_dim; ++d) at[2 * d] = 0;
  }
}

// The sums of one line again, of what it sees alone: the others of the block, or what was left in a
// slot, may be infinities and NaNs, whose product with a weight of 0 is a NaN.
template <int C>
void SumAlone(const AttentionBlock& block, const Run& run, int line, int64_t dim,
              const Lines& lines, float* sums) {
  const Seen seen = SeenOf(block, line, run);
  const int64_t begin = run.begin + seen.begin, end = run.begin + seen.end;
  alignas(64) std::byte copy[kLanes * kMaxHeadDim * 2];
  alignas(64) float all[kTileRows * C * kLanes];
  ForTiles<C>([](auto c) __attribute__((always_inline)) { TileZero<c>(); });
  for (int64_t tile = begin / kLanes; tile * kLanes < end; ++tile) {
    const int64_t first_key = tile * kLanes;
    CopySeen(block.values[tile], block.v_head_dim, begin - first_key, end - first_key, copy);
    AddTile<C>(block, run, tile, copy, dim, lines);
  }
  StoreSums<C>(all);
  memcpy(sums, all + line * C * kLanes, C * kTileBytes);
}

template <int C>
SPRY_INLINE bool AllFinite(const float* sums) {
  __m512 check = _mm512_setzero_ps();
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) {
    check = _mm512_fmadd_ps(_mm512_loadu_ps(sums + c * kLanes), _mm512_setzero_ps(), check);
  }
  return _mm512_cmp_ps_mask(check, check, _CMP_UNORD_Q) == 0;
}

// C * 16 elements of the output, from `dim` on. None becomes -0: the sign of a zero would tell of
// values that the line does not see.
template <int C>
SPRY_INLINE void WeighDims(const AttentionBlock& block, const Run& run, int64_t dim,
                           const Lines& lines) {
  alignas(64) float sums[kTileRows * C * kLanes];
  ForTiles<C>([](auto c) __attribute__((always_inline)) { TileZero<c>(); });
  for (int64_t t = run.first_tile; t < run.end_tile; ++t) {
    AddTile<C>(block, run, t, block.values[t], dim, lines);
  }
  StoreSums<C>(sums);
  const bool first = run.begin <= block.starts[0];
  for (int l = 0; l < block.lines; ++l) {
    float* line_sums = sums + l * C * kLanes;
    if ((lines.see >> l & 1) == 0) {
      if (!first) continue;
      memset(line_sums, 0, C * kTileBytes);
    } else if (!AllFinite<C>(line_sums)) [[unlikely]] {
      SumAlone<C>(block, run, l, dim, lines, line_sums);
    }
    const __m512 by = _mm512_set1_ps(lines.rescale[l]);
    float* output = block.output + l * block.output_stride + dim;
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const __m512 before = first ? _mm512_setzero_ps() : _mm512_loadu_ps(output + c * kLanes);
      const __m512 after = _mm512_fmadd_ps(before, by, _mm512_loadu_ps(line_sums + c * kLanes));
      _mm512_storeu_ps(output + c * kLanes, _mm512_add_ps(after, _mm512_setzero_ps()));
    }
  }
}

void Weigh(const AttentionBlock& block, const Run& run, const Lines& lines) {
  int64_t dim = 0;
  for (; dim + kSums * kLanes <= block.v_head_dim; dim += kSums * kLanes) {
    WeighDims<kSums>(block, run, dim, lines);
  }
  for (; dim + 2 * kLanes <= block.v_head_dim; dim += 2 * kLanes) {
    WeighDims<2>(block, run, dim, lines);
  }
  if (dim < block.v_head_dim) WeighDims<1>(block, run, dim, lines);
}

void Attend(AttentionBlock& block) {
  const bool bent = block.soft_cap > 0.0f || block.has_alibi;
  Lines lines;
  Start(block, bent ? block.scale : block.scale * kLog2E, lines);
  const int64_t end = block.counts[block.lines - 1];
  for (int64_t begin = block.starts[0] / kRun * kRun; begin < end; begin += kRun) {
    const Run run = RunOf(block, begin);
    Score(block, run, lines);
    if (bent) BendAll(block, run, lines);
    SoftenAll(block, run, lines);
    Weigh(block, run, lines);
  }
  for (int l = 0; l < block.lines; ++l) {
    block.states[l] = {.max = lines.max[l] * kLn2, .sum = Avx512::FoldLanes({lines.totals[l]})};
  }
}

// Into every other half of the tile's words. The halves beside them are another key's, which
// another worker may be writing.
void WriteValue(const float* from, int64_t v_head_dim, int row, std::byte* tile) {
  std::byte* value = tile + row / 2 * v_head_dim * 4;
  const __mmask32 halves = row % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
  for (int64_t d = 0; d < v_head_dim; d += kLanes) {
    const __m512i bits = RoundBitsToBf16<Avx512>(_mm512_loadu_ps(from + d));  // in upper halves
    const __m512i placed = row % 2 == 0 ? _mm512_srli_epi32(bits, 16) : bits;
    _mm512_mask_storeu_epi16(value + d * 4, halves, placed);
  }
}

}  // namespace

const AttentionKernels& AmxAttentionKernels() {
  static const AttentionKernels kKernels = [] {
    AttentionKernels kernels = Avx512AttentionKernels();
    constexpr int kBf16 = static_cast<int>(KvKind::kBF16);
    kernels.max_lines = kMaxBlockLines;
    kernels.enter = Enter;
    kernels.leave = Leave;
    for (auto& attend : kernels.attend[kBf16]) attend = Attend;
    kernels.write_value[kBf16] = WriteValue;
    return kernels;
  }();
  return kKernels;
}

}  // namespace spry
