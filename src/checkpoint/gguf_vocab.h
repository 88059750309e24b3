// The vocabulary inside a GGUF file (keys tokenizer.ggml.*).
#pragma once

#include "base/status.h"
#include "checkpoint/gguf.h"
#include "text/vocab_source.h"

namespace spry {

// Works on files without tensors too. An id whose key is absent is absent: there is no default.
Result<VocabSource> GgufVocab(const GgufMetadata& metadata);

}  // namespace spry
