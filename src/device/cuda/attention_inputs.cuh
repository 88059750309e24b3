// What every attention kernel of a cache of blocks is bound to.
#pragma once

#include <cstdint>

#include "device/cuda/kernel.h"
#include "device/cuda/kv_cache.cuh"

namespace spry::cuda {

struct AttentionInputs {
  BoundLaunch rope;      // launch null: q and k come rotated
  BoundLaunch write_kv;  // launch null: an op of its own
  Matrix q, k, v, out;   // k, v: with write_kv folded in
  KvCache cache;
  float scale = 1.0f;
  int32_t group = 1;        // query heads per KV head
  int32_t block_shift = 0;  // block sizes are powers of two
};

// Refuses, in the name of a backend, types and head sizes that are not all the same.
Result<AttentionInputs> BindAttentionInputs(const OpRecord& op, BindContext& context,
                                            const char* backend);

}  // namespace spry::cuda
