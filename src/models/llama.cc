// Llama 1-3.x and its look-alikes (SmolLM2, TinyLlama): RMS norm, rotary positions, grouped-query
// attention, gated MLP.
#include <cmath>
#include <vector>

#include "models/model.h"
#include "models/rope_frequencies.h"
#include "models/weight_scope.h"
#include "ops/activation.h"
#include "ops/add.h"
#include "ops/attention/attention.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/sampling.h"

namespace spry {

void TraceLlama(Tracer& t, const ModelConfig& c, const Weights& weights) {
  const int64_t E = c.hidden_size, F = c.intermediate_size, D = c.head_dim;
  const int64_t Q = c.num_heads * D, KV = c.num_kv_heads * D;
  const WeightScope model(t, weights, "model.");
  const Result<Activation> activation = ParseActivation(c.activation);
  if (!activation.ok()) return t.Fail(activation.status());

  const NormParams norm{.epsilon = static_cast<float>(c.norm_epsilon)};
  const RopeParams rope{.num_heads = c.num_heads,
                        .num_kv_heads = c.num_kv_heads,
                        .head_dim = static_cast<int32_t>(D),
                        .rotary_dim = static_cast<int32_t>(D),
                        .interleaved = c.rope_interleaved};
  const AttentionParams attention{.num_heads = c.num_heads,
                                  .num_kv_heads = c.num_kv_heads,
                                  .head_dim = static_cast<int32_t>(D),
                                  .v_head_dim = static_cast<int32_t>(D),
                                  .scale = 1.0f / std::sqrt(static_cast<float>(D))};
  const std::vector<double> frequencies = RopeFrequencies(t, c, weights);
  if (!t.ok()) return;
  const WeightId rope_table = AddRopeTable(t, frequencies, c.rope_attention_factor);

  const WeightHandle embedding = model("embed_tokens.weight", {c.vocab_size, E});
  Tensor x = Embed(t, embedding);  // [T, E]
  for (int i = 0; i < c.num_layers; ++i) {
    const WeightScope w = model.Layer(i);
    const Tensor h = RmsNorm(t, x, w("input_layernorm.weight", {E}), norm);
    const Tensor qkv = Linear(t, h,
                              w.Stack({{"self_attn.q_proj.weight", {Q, E}},
                                       {"self_attn.k_proj.weight", {KV, E}},
                                       {"self_attn.v_proj.weight", {KV, E}}}),
                              w.Stack({{"self_attn.q_proj.bias", {Q}},
                                       {"self_attn.k_proj.bias", {KV}},
                                       {"self_attn.v_proj.bias", {KV}}},
                                      c.attention_bias),
                              {.name = "qkv"});
    const Tensor q = qkv.Columns(0, Q), k = qkv.Columns(Q, KV), v = qkv.Columns(Q + KV, KV);
    Rope(t, q, k, rope_table, rope);
    const Tensor a = Attention(t, q, k, v, attention);  // [T, Q]
    x = Add(t, x,
            Linear(t, a, w.Stack({{"self_attn.o_proj.weight", {E, Q}}}),
                   w.Stack({{"self_attn.o_proj.bias", {E}}}, c.output_bias), {.name = "o"}));

    const Tensor g = RmsNorm(t, x, w("post_attention_layernorm.weight", {E}), norm);
    const Tensor gate_up =
        Linear(t, g, w.Stack({{"mlp.gate_proj.weight", {F, E}}, {"mlp.up_proj.weight", {F, E}}}),
               w.Stack({{"mlp.gate_proj.bias", {F}}, {"mlp.up_proj.bias", {F}}}, c.mlp_bias),
               {.name = "gate_up"});
    const Tensor m = GatedActivate(t, gate_up, *activation);  // [T, F]
    x = Add(t, x,
            Linear(t, m, w.Stack({{"mlp.down_proj.weight", {E, F}}}),
                   w.Stack({{"mlp.down_proj.bias", {E}}}, c.mlp_bias), {.name = "down"}));
  }
  x = RmsNorm(t, GatherSamples(t, x), model("norm.weight", {E}), norm);  // [L, E]
  const WeightScope root(t, weights, "");
  TraceHead(t, x, c.tied_embeddings ? embedding : root("lm_head.weight", {c.vocab_size, E}));
}

}  // namespace spry
