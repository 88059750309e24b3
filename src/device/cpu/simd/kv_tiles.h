// The cache layout of the cpu backend. A block holds, for each kv head, its keys and then its
// values. Keys lie in tiles of as many keys as a vector has lanes, transposed: [D][lanes], so that
// a lane is a key and the sum over D runs down the lane. Values are rows [key][Dv], so that a lane
// is an element of the output. bf16 lies in pairs, which one load and two cheap instructions widen:
// keys as [D / 2][lanes][2]; in a value, of each 2 * lanes elements, i beside lanes + i. With AMX a
// tile of bf16 values is instead what its products take: pairs of keys, [lanes / 2][Dv][2].
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"
#include "tensor/dtype.h"

namespace spry {

class KvTiles {
 public:
  KvTiles() = default;
  KvTiles(const KvLayer& layer, int block_size, int lanes)
      : block_size_(block_size),
        lanes_(lanes),
        key_bytes_(RowBytes(layer.dtype, layer.head_dim)),
        value_bytes_(RowBytes(layer.dtype, layer.v_head_dim)),
        head_bytes_((key_bytes_ + value_bytes_) * block_size),
        block_bytes_(head_bytes_ * layer.num_kv_heads) {}

  int block_size() const { return block_size_; }
  int lanes() const { return lanes_; }
  int64_t bytes_per_block() const { return block_bytes_; }

  // In bytes from the start of the layer's cache: the tiles of keys and of values that begin at
  // `slot`.
  int64_t KeyTile(int64_t block, int64_t head, int64_t slot) const {
    return block * block_bytes_ + head * head_bytes_ + slot * key_bytes_;
  }
  int64_t ValueTile(int64_t block, int64_t head, int64_t slot) const {
    return block * block_bytes_ + head * head_bytes_ + block_size_ * key_bytes_ +
           slot * value_bytes_;
  }

 private:
  int block_size_ = 0;  // a multiple of lanes
  int lanes_ = 0;
  int64_t key_bytes_ = 0;    // of one key
  int64_t value_bytes_ = 0;  // of one value
  int64_t head_bytes_ = 0;
  int64_t block_bytes_ = 0;
};

}  // namespace spry
