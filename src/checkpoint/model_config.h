// What a model is, read once from config.json or from GGUF metadata and never changed after: the
// sizes and switches that src/models needs, in the words of Hugging Face configs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "tensor/dtype.h"

namespace spry {

struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kLongRope };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;      // kLlama3
  double high_freq_factor = 4.0;     // kLlama3
  double original_max_position = 0;  // kLlama3; kLongRope: longer contexts take the long factors
};

// Defaults for fields that a request leaves out (generation_config.json, as vLLM uses it).
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
};

struct ModelConfig {
  std::string architecture;   // "LlamaForCausalLM", "OPTForCausalLM"; the key of models/registry
  DType dtype = DType::kF32;  // of the checkpoint: f32, f16 or bf16 (GGUF: bf16)

  int64_t vocab_size = 0;  // rows of the embedding, padding included
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position = 0;  // longest sequence the model was made for, in tokens

  double norm_epsilon = 1e-5;
  bool tied_embeddings = false;
  bool attention_bias = false;  // on q, k, v
  bool output_bias = false;     // on the attention output projection
  bool mlp_bias = false;
  std::string activation = "silu";  // "silu", "relu", "gelu", "gelu_tanh"

  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  double rope_attention_factor = 1.0;  // that rope's cosines and sines are multiplied by
  // GGUF files of the llama family pair neighbours (0,1), (2,3) ...; Hugging Face pairs i, i + D/2.
  bool rope_interleaved = false;

  bool do_layer_norm_before = true;  // OPT
  bool remove_final_layer_norm = false;
  int64_t word_embed_proj_dim = 0;

  std::optional<TokenId> bos_token;
  std::vector<TokenId> eos_tokens;  // the union over config, generation config and tokenizer
  SamplingDefaults sampling_defaults;
};

}  // namespace spry
