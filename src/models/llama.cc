// Llama 1-3.x and its look-alikes (SmolLM2, TinyLlama): RMS norm, rotary positions, grouped-query
// attention, gated MLP.
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "models/model.h"
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
namespace {

// Llama 3.1's scaling: short waves stay, long ones slow down by `factor`, those between are
// blended.
double ScaleLlama3(double frequency, const RopeScaling& scaling) {
  const double turns =
      scaling.original_max_position * frequency / (2.0 * std::numbers::pi);  // over the context
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  const double blend =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - blend) * frequency / scaling.factor + blend * frequency;
}

// Radians per position for each pair. GGUF files carry llama3 scaling as divisors, rope_freqs.
std::vector<double> RopeFrequencies(Tracer& tracer, const ModelConfig& c, const Weights& weights) {
  const int64_t half = c.head_dim / 2;
  std::vector<float> divisors(half, 1.0f);
  if (weights.Has("rope_freqs.weight")) {
    const WeightScope scope(tracer, weights, "");
    const WeightHandle handle = scope("rope_freqs.weight", {half});
    if (!tracer.ok()) return {};
    const Result<HostTensor> tensor = handle.read();
    if (tensor.ok() && tensor->data.size() == divisors.size() * sizeof(float)) {
      std::memcpy(divisors.data(), tensor->data.data(), tensor->data.size());
    } else {
      tracer.Fail(tensor.ok() ? InvalidArgument("rope_freqs.weight is not float32")
                              : tensor.status());
    }
  }
  std::vector<double> frequencies(half);
  for (int64_t i = 0; i < half; ++i) {
    double f = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / c.head_dim) / divisors[i];
    if (c.rope_scaling.kind == RopeScaling::Kind::kLinear) f /= c.rope_scaling.factor;
    if (c.rope_scaling.kind == RopeScaling::Kind::kLlama3) f = ScaleLlama3(f, c.rope_scaling);
    frequencies[i] = f;
  }
  return frequencies;
}

}  // namespace

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
  const WeightId rope_table = AddRopeTable(t, frequencies);

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
