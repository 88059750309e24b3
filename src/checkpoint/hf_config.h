// config.json and generation_config.json of a Hugging Face folder, as transformers 4 and 5 write
// them. Every number is checked against a named limit; what spry does not serve (architecture, rope
// scaling, activation, quantisation) is refused by its name in the file.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "checkpoint/model_config.h"

namespace spry {

// Without an id of its own a config has no bos and no end: the class defaults of transformers
// (1 and 2 for Llama) are seldom true of the vocabulary.
Result<ModelConfig> ReadHfConfig(const std::filesystem::path& config_json);

// Adds the end-of-sequence ids and sampling defaults of generation_config.json, if it is there.
Status AddGenerationConfig(const std::filesystem::path& generation_config_json,
                           ModelConfig& config);

// Adds one id to config.eos_tokens unless it is there.
void AddEosToken(TokenId id, ModelConfig& config);

}  // namespace spry
