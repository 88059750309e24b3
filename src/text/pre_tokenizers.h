// The pre-tokenizer patterns that GGUF files name in `tokenizer.ggml.pre`.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

// "smollm", "llama-bpe", "qwen2", "gpt-2" ...; unknown names are refused with the list of known.
// Sets splits, and the switches that go with the name: ignore_merges, the normaliser, and add_bos
// where the name implies it and `source.bos` is set (so set that before, and obey the file's own
// tokenizer.ggml.add_bos_token after).
Status ApplyPreTokenizer(std::string_view name, VocabSource& source);

}  // namespace spry
