// What the metadata and tensor names of a GGUF file mean: the configuration of the model, and the
// Hugging Face names of its weights.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config.h"

namespace spry {

// For general.architecture "llama"; others are refused by name. End-of-sequence ids are not set
// here: they belong to the vocabulary. Keys that are missing mean what they mean to llama.cpp.
Result<ModelConfig> GgufConfig(const GgufFile& file);

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". Names that it does not know,
// "rope_freqs.weight" and "rope_factors_long.weight" among them, stay as they are.
std::string HuggingFaceName(std::string_view gguf_name);

}  // namespace spry
