// OPT: LayerNorm, learned positions, ReLU. All sizes but 350m put the norms before attention and
// MLP, with one more at the end; 350m puts them after each sum, and its tokens are narrower than
// the model.
#include <cmath>
#include <string>

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

// LayerNorm with the weights <name>.weight and <name>.bias.
Tensor Normalize(Tracer& t, const ModelConfig& c, const WeightScope& w, const std::string& name,
                 const Tensor& x) {
  return LayerNorm(t, x, w(name + ".weight", {c.hidden_size}), w(name + ".bias", {c.hidden_size}),
                   {.epsilon = static_cast<float>(c.norm_epsilon)});
}

// Token rows of another width than the model's are projected before positions are added.
Tensor EmbedTokens(Tracer& t, const ModelConfig& c, const WeightScope& model,
                   const WeightHandle& tokens) {
  const int64_t E = c.hidden_size, P = c.word_embed_proj_dim;
  const WeightHandle positions =
      model("embed_positions.weight", {c.max_position + kPositionOffset, E});
  if (P == E) return Embed(t, tokens, positions, {.position_offset = kPositionOffset});
  const Tensor p = EmbedPositions(t, positions, {.position_offset = kPositionOffset});
  return Add(t, p,
             Linear(t, Embed(t, tokens), model.Stack({{"project_in.weight", {E, P}}}), {},
                    {.name = "projected"}));
}

}  // namespace

void TraceOpt(Tracer& t, const ModelConfig& c, const Weights& weights) {
  const int64_t E = c.hidden_size, F = c.intermediate_size, P = c.word_embed_proj_dim;
  const bool norm_before = c.do_layer_norm_before;
  const WeightScope model(t, weights, "model.decoder.");
  const Result<Activation> activation = ParseActivation(c.activation);
  if (!activation.ok()) return t.Fail(activation.status());

  const AttentionParams attention{.num_heads = c.num_heads,
                                  .num_kv_heads = c.num_heads,
                                  .head_dim = static_cast<int32_t>(c.head_dim),
                                  .v_head_dim = static_cast<int32_t>(c.head_dim),
                                  .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))};

  const WeightHandle embedding = model("embed_tokens.weight", {c.vocab_size, P});
  Tensor x = EmbedTokens(t, c, model, embedding);  // [T, E]
  for (int i = 0; i < c.num_layers; ++i) {
    const WeightScope w = model.Layer(i);
    const Tensor h = norm_before ? Normalize(t, c, w, "self_attn_layer_norm", x) : x;
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
    if (!norm_before) x = Normalize(t, c, w, "self_attn_layer_norm", x);
    const Tensor g = norm_before ? Normalize(t, c, w, "final_layer_norm", x) : x;
    const Tensor up = Linear(t, g, w.Stack({{"fc1.weight", {F, E}}}),
                             w.Stack({{"fc1.bias", {F}}}, c.mlp_bias), {.name = "up"});
    x = Add(t, x,
            Linear(t, Activate(t, up, *activation), w.Stack({{"fc2.weight", {E, F}}}),
                   w.Stack({{"fc2.bias", {E}}}, c.mlp_bias), {.name = "down"}));
    if (!norm_before) x = Normalize(t, c, w, "final_layer_norm", x);
  }
  x = GatherSamples(t, x);  // [L, E]
  if (norm_before && !c.remove_final_layer_norm) x = Normalize(t, c, model, "final_layer_norm", x);
  if (P != E) {
    x = Linear(t, x, model.Stack({{"project_out.weight", {P, E}}}), {}, {.name = "projected"});
  }
  const WeightScope root(t, weights, "");
  TraceHead(t, x, c.tied_embeddings ? embedding : root("lm_head.weight", {c.vocab_size, P}));
}

}  // namespace spry
