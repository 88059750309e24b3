// Reads the tokenizer files of a Hugging Face folder into a VocabSource.
#pragma once

#include <filesystem>
#include <optional>

#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

// tokenizer.json, or else tokenizer.model, or else vocab.json + merges.txt, each with
// tokenizer_config.json, special_tokens_map.json, chat_template.jinja and
// additional_chat_templates/tool_use.jinja beside it; nothing when the folder has none of them.
// Unsupported parts (another model type, an unknown pre-tokenizer) are refused by name.
Result<std::optional<VocabSource>> ReadTokenizerFiles(const std::filesystem::path& folder);

}  // namespace spry
