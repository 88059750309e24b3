// SentencePiece's tokenizer.model: a protocol buffer with the pieces (text, score, type) and how
// the model was trained and normalises. Read by the field numbers of sentencepiece_model.proto.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

// `file` names the bytes in errors, which say at which byte of them. BPE and Unigram models; others
// are refused by name. bos and eos are set but not asked for: whether they go around a text only
// tokenizer_config.json says.
Result<VocabSource> ParseSentencePieceModel(std::string_view file, std::string_view bytes);

}  // namespace spry
