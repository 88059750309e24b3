// The attention op and its cache: one op for every backend. It writes into `out`, which is given,
// and takes no metadata: rows, positions, block tables lie at fixed addresses (program/step.h).
//
//   write_kv:  for each live token t: slot = block_table[row][pos / block_size], pos % block_size;
//              cache[layer][slot] = k[t], v[t]. The slot is derived on the device.
//   attention: out[t, h] = sum_j softmax_j(score(q[t, h], k_j)) v_j over the cached positions
//              j <= positions[t] of t's row (j > positions[t] - window with a window), kv head
//              h / (H / Hkv).
//              score = scale * q.k; soft cap c: c * tanh(score / c); alibi: + slope[h] * (j - pos);
//              sinks: exp(sink[h] - max) joins the denominator.
//
//   q [T, H, D], k [T, Hkv, D], v [T, Hkv, Dv], out [T, H, Dv], activation dtype.
// KV is cut at absolute multiples of kKvSegment tokens; segments give mergeable states (max, sum,
// output) that are merged in ascending order, in prefill and decode alike, so a token's result does
// not depend on batch, chunk or thread count.
#pragma once

#include <optional>

#include "ops/rope.h"
#include "program/tracer.h"

namespace spry {

inline constexpr int kKvSegment = 512;  // tokens; a multiple of every block size

struct AttentionParams {
  LayerIdx layer;  // set by Attention()
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t v_head_dim = 0;
  float scale = 1.0f;
  int32_t window = 0;      // tokens, itself included; 0: none
  float soft_cap = 0.0f;   // 0: none
  bool has_alibi = false;  // set by Attention(); the op's weights: slopes
  bool has_sinks = false;  // set by Attention(); the op's weights, after slopes: sinks
  RopeParams rope;         // after fusion; the op's last weight: its table. rotary_dim 0: none
};

// [H] each, of any plain dtype; computed with as f32.
struct AttentionWeights {
  std::optional<WeightHandle> alibi_slopes;
  std::optional<WeightHandle> sinks;
};

// inputs of attention: q; after fusion q, k, v, and the op writes k and v to the cache first; with
// rope folded in too, q and k come as the projection left them, and nobody reads them afterwards.
struct WriteKvParams {
  LayerIdx layer;
};

// Emits write_kv and attention, in this order.
Tensor Attention(Tracer& tracer, const Tensor& q, const Tensor& k, const Tensor& v,
                 AttentionParams params, const AttentionWeights& weights = {});

}  // namespace spry
