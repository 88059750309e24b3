// The cache layout of the cpu-reference backend. A block holds, for one layer, the keys
// [kv heads][block_size][D] and then the values [kv heads][block_size][Dv].
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "program/program.h"
#include "tensor/dtype.h"
#include "tensor/float16.h"

namespace spry::reference {

class KvLayout {
 public:
  KvLayout() = default;
  KvLayout(const KvLayer& layer, int block_size)
      : block_size_(block_size),
        kv_heads_(layer.num_kv_heads),
        key_bytes_(RowBytes(layer.dtype, layer.head_dim)),
        value_bytes_(RowBytes(layer.dtype, layer.v_head_dim)) {}

  int block_size() const { return block_size_; }
  int64_t bytes_per_block() const { return (key_bytes_ + value_bytes_) * block_size_ * kv_heads_; }
  // Of one head at one slot of a block, in bytes from the start of the layer's cache.
  int64_t KeyOffset(int64_t block, int head, int slot) const {
    return block * bytes_per_block() + (int64_t{head} * block_size_ + slot) * key_bytes_;
  }
  int64_t ValueOffset(int64_t block, int head, int slot) const {
    return block * bytes_per_block() + key_bytes_ * block_size_ * kv_heads_ +
           (int64_t{head} * block_size_ + slot) * value_bytes_;
  }

 private:
  int block_size_ = 0;
  int kv_heads_ = 0;
  int64_t key_bytes_ = 0;
  int64_t value_bytes_ = 0;
};

// How an element of the cache is stored.
struct KvF32 {
  using Stored = float;
  static float Load(float stored) { return stored; }
  static float Store(float value) { return value; }
};
struct KvBf16 {
  using Stored = uint16_t;
  static float Load(uint16_t stored) { return Bf16ToFloat(stored); }
  static uint16_t Store(float value) { return FloatToBf16(value); }
};
struct KvF16 {
  using Stored = uint16_t;
  static float Load(uint16_t stored) { return F16ToFloat(stored); }
  static uint16_t Store(float value) { return FloatToF16(value); }
};

}  // namespace spry::reference
