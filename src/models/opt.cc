// OPT with norms before attention and MLP (all sizes but 350m): LayerNorm, learned positions, ReLU.
#include <cmath>

#include "models/model.h"
#include "models/weight_scope.h"
#include "ops/activation.h"
#include "ops/add.h"
#include "ops/attention/attention.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/sampling.h"

namespace spry {
namespace {

// The table of learned positions starts with two rows that stand for padding.
constexpr int kPositionOffset = 2;

Status CheckForm(const ModelConfig& c) {
  if (!c.do_layer_norm_before) {
    return Unimplemented(
        "config.json says do_layer_norm_before false (OPT-350m); spry serves OPT with it true");
  }
  if (c.word_embed_proj_dim != c.hidden_size) {
    return Unimplemented("config.json says word_embed_proj_dim " +
                         std::to_string(c.word_embed_proj_dim) + " but hidden_size " +
                         std::to_string(c.hidden_size) + "; spry serves OPT with both equal");
  }
  return {};
}

}  // namespace

void TraceOpt(Tracer& t, const ModelConfig& c, const Weights& weights) {
  if (Status form = CheckForm(c); !form.ok()) return t.Fail(std::move(form));
  const int64_t E = c.hidden_size, F = c.intermediate_size;
  const WeightScope model(t, weights, "model.decoder.");
  const Result<Activation> activation = ParseActivation(c.activation);
  if (!activation.ok()) return t.Fail(activation.status());

  const NormParams norm{.epsilon = static_cast<float>(c.norm_epsilon)};
  const AttentionParams attention{.num_heads = c.num_heads,
                                  .num_kv_heads = c.num_heads,
                                  .head_dim = static_cast<int32_t>(c.head_dim),
                                  .v_head_dim = static_cast<int32_t>(c.head_dim),
                                  .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))};

  const WeightHandle embedding = model("embed_tokens.weight", {c.vocab_size, E});
  Tensor x =
      Embed(t, embedding, model("embed_positions.weight", {c.max_position + kPositionOffset, E}),
            {.position_offset = kPositionOffset});  // [T, E]
  for (int i = 0; i < c.num_layers; ++i) {
    const WeightScope w = model.Layer(i);
    const Tensor h = LayerNorm(t, x, w("self_attn_layer_norm.weight", {E}),
                               w("self_attn_layer_norm.bias", {E}), norm);
    const Tensor qkv = Linear(t, h,
                              w.Stack({{"self_attn.q_proj.weight", {E, E}},
                                       {"self_attn.k_proj.weight", {E, E}},
                                       {"self_attn.v_proj.weight", {E, E}}}),
                              w.Stack({{"self_attn.q_proj.bias", {E}},
                                       {"self_attn.k_proj.bias", {E}},
                                       {"self_attn.v_proj.bias", {E}}},
                                      c.attention_bias),
                              {.name = "qkv"});
    const Tensor a = Attention(t, qkv.Columns(0, E), qkv.Columns(E, E), qkv.Columns(2 * E, E),
                               attention);  // [T, E]
    x = Add(t, x,
            Linear(t, a, w.Stack({{"self_attn.out_proj.weight", {E, E}}}),
                   w.Stack({{"self_attn.out_proj.bias", {E}}}, c.output_bias), {.name = "o"}));

    const Tensor g =
        LayerNorm(t, x, w("final_layer_norm.weight", {E}), w("final_layer_norm.bias", {E}), norm);
    const Tensor up = Linear(t, g, w.Stack({{"fc1.weight", {F, E}}}),
                             w.Stack({{"fc1.bias", {F}}}, c.mlp_bias), {.name = "up"});
    x = Add(t, x,
            Linear(t, Activate(t, up, *activation), w.Stack({{"fc2.weight", {E, F}}}),
                   w.Stack({{"fc2.bias", {E}}}, c.mlp_bias), {.name = "down"}));
  }
  x = GatherSamples(t, x);  // [L, E]
  if (!c.remove_final_layer_norm) {
    x = LayerNorm(t, x, model("final_layer_norm.weight", {E}), model("final_layer_norm.bias", {E}),
                  norm);
  }
  const WeightScope root(t, weights, "");
  TraceHead(t, x, c.tied_embeddings ? embedding : root("lm_head.weight", {c.vocab_size, E}));
}

}  // namespace spry
