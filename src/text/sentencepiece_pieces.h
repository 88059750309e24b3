// What SentencePiece's kinds of pieces mean for a vocabulary. tokenizer.model and GGUF number them
// alike.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

enum class PieceType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never in text that users see
  kUserDefined = 4,  // matched whole, and shown
  kUnused = 5,       // takes part in merges but never stands for itself
  kByte = 6,         // <0x0A>
};

// Who matches user-defined pieces: SentencePiece's models, BPE cutting the normalised text by them
// and Unigram choosing them by their length, or the tokenizer in the text as it came (llama.cpp),
// so that a text that starts with one has no prefix.
enum class UserDefinedIn { kBpe, kUnigram, kText };

// Sets what follows from the types, one for each of source.pieces: added tokens, unused pieces,
// byte fallback and, unless it is set, the unknown token. Refuses a byte piece that is spelled
// otherwise.
Status ApplyPieceTypes(const std::vector<PieceType>& types, UserDefinedIn user_defined,
                       VocabSource& source);

// Sets the normaliser and the decoding to SentencePiece's, by source.sentence_piece.
void UseSentencePieceText(VocabSource& source);

}  // namespace spry
