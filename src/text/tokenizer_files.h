// Reads the tokenizer files of a Hugging Face folder into a VocabSource.
#pragma once

#include <filesystem>
#include <optional>

#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

// tokenizer.json (+ tokenizer_config.json, special_tokens_map.json, chat_template.jinja,
// additional_chat_templates/tool_use.jinja), or vocab.json + merges.txt; nothing when the folder
// has neither. Unsupported parts of a tokenizer.json (another model type, an unknown pre-tokenizer)
// are refused by name.
Result<std::optional<VocabSource>> ReadTokenizerFiles(const std::filesystem::path& folder);

}  // namespace spry
