// How the attention backend "cuda" shares a step out among blocks, and the scratch it needs for
// that.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "ops/math.h"
#include "program/program.h"
#include "program/step.h"

namespace spry::cuda {

struct LaunchContext;

// Tokens of one request that a block of a mixed step takes together. None: no work.
struct alignas(16) QueryTile {
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t row = -1;      // the request's permanent row; below 0: padding
  int32_t position = 0;  // of the first token

  SPRY_HOST_DEVICE int32_t End() const { return position + num_tokens; }
};

struct AttentionScratch {
  QueryTile* tiles = nullptr;   // of the mixed step
  uint32_t* arrived = nullptr;  // by unit (a token and a block of heads); 0 between launches
  float* parts = nullptr;       // by unit, segment, head: max, sum, output
  int32_t max_segments = 1;     // of a row

  // The most blocks that segments are spread over.
  static constexpr int32_t kBlocks = 264;

  // Over how many blocks the segments of a row are spread, where so many blocks run at once.
  int32_t Splits(int32_t units, int32_t blocks) const {
    return std::clamp(std::min(blocks, kBlocks) / units, 1, max_segments);
  }

  SPRY_HOST_DEVICE float* Part(int32_t unit, int32_t segment, int32_t heads, int32_t dim) const {
    return parts + (int64_t{unit} * max_segments + segment) * heads * (dim + 2);
  }
};

// The heads of a group that one block computes: the largest divisor up to 8.
int32_t HeadsOfBlock(int32_t group);

// The first attention op of a step plans the tiles, and every one that cuts differently.
bool PlansTiles(const Program& program, const OpRecord& attention);

// How the tokens that a request has in a mixed step are cut: up to `few_tokens` into tiles of
// `few_per_tile`, more into tiles of `per_tile`.
struct TileSizes {
  int32_t per_tile = 1;
  int32_t few_tokens = 0;
  int32_t few_per_tile = 1;

  SPRY_HOST_DEVICE int32_t Of(int32_t tokens) const {
    return tokens <= few_tokens ? few_per_tile : per_tile;
  }
  // Of a step with so many tokens and rows.
  int32_t MostTiles(int32_t tokens, int32_t rows) const;
};

// A request's tiles are planned last tokens first: those see most, so they should start first.
void LaunchPlanTiles(QueryTile* tiles, int32_t most_tiles, const TileSizes& sizes,
                     const StepState& state, const LaunchContext& context);

int64_t AttentionScratchBytes(const Program& program, const StepLimits& limits);
// `base` holds that many bytes, all 0.
AttentionScratch MapAttentionScratch(const Program& program, const StepLimits& limits,
                                     std::byte* base);

}  // namespace spry::cuda
