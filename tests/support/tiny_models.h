// Models small enough to run by the thousand: random weights from a fixed seed, no files.
#pragma once

#include "checkpoint/checkpoint.h"
#include "checkpoint/dummy_weights.h"

namespace spry {

inline ModelConfig TinyLlamaConfig() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.dtype = DType::kF32;
  config.vocab_size = 320;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.max_position = 512;
  config.eos_tokens = {TokenId(2)};
  return config;
}

inline ModelConfig TinyOptConfig() {
  ModelConfig config = TinyLlamaConfig();
  config.architecture = "OPTForCausalLM";
  config.num_kv_heads = 4;
  config.activation = "relu";
  config.attention_bias = config.output_bias = config.mlp_bias = true;
  config.tied_embeddings = true;
  config.word_embed_proj_dim = config.hidden_size;
  return config;
}

// The form of opt-350m: norms after the sums, token rows narrower than the model.
inline ModelConfig TinyPostNormOptConfig() {
  ModelConfig config = TinyOptConfig();
  config.do_layer_norm_before = false;
  config.word_embed_proj_dim = config.hidden_size / 2;
  return config;
}

inline Checkpoint DummyCheckpoint(const ModelConfig& config, uint64_t seed = 7) {
  return {.format = "dummy",
          .config = config,
          .weights = MakeDummyWeights(config.dtype, seed),
          .vocab = nullptr};
}

}  // namespace spry
