// The cache layout of all backends here, and the kernel that writes it. A layer is [num_blocks] of
// { k [Hkv, block_size, D], v [Hkv, block_size, Dv] }.
#pragma once

#include <cstdint>

#include "device/cuda/kernel.h"
#include "program/program.h"

namespace spry::cuda {

// A layer's cache and how positions find their place in it.
struct KvCache {
  std::byte* data = nullptr;
  int32_t block_size = 0;
  int32_t max_blocks_per_row = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t v_head_dim = 0;

  __device__ int64_t BlockElements() const {
    return int64_t{num_kv_heads} * block_size * (head_dim + v_head_dim);
  }
  template <typename Kv>
  __device__ Kv* Key(int32_t block, int32_t offset, int32_t head) const {
    return reinterpret_cast<Kv*>(data) + block * BlockElements() +
           (int64_t{head} * block_size + offset) * head_dim;
  }
  template <typename Kv>
  __device__ Kv* Value(int32_t block, int32_t offset, int32_t head) const {
    return reinterpret_cast<Kv*>(data) + block * BlockElements() +
           int64_t{num_kv_heads} * block_size * head_dim +
           (int64_t{head} * block_size + offset) * v_head_dim;
  }
};

int64_t KvBytesPerBlock(const KvLayer& layer, int block_size);
KvCache CacheOf(const KvLayer& layer, LayerIdx index, const BindContext& context);

// write_kv as an op of its own, and as the first half of an attention op that has k and v.
Result<BoundLaunch> BindWriteKv(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindFoldedWriteKv(const OpRecord& attention, BindContext& context);

}  // namespace spry::cuda
