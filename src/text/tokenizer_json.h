// tokenizer.json, the file of the `tokenizers` library.
#pragma once

#include "base/status.h"
#include "text/json_object.h"
#include "text/vocab_source.h"

namespace spry {

// The whole file. What is not supported is refused by its field, with what is.
Result<VocabSource> ParseTokenizerJson(const JsonObject& root);

// Its parts that say what is done around the model: normalizer, pre_tokenizer, post_processor,
// decoder. They also tell a byte-level model from others.
Status ParseTokenizerSteps(const JsonObject& root, VocabSource& source);

// The members of `vocab` (token -> id), as model.vocab and vocab.json have them.
Status ParseVocab(const JsonObject& vocab, VocabSource& source);

// An added token spelled as an object; its id is set by the caller.
Result<AddedToken> ParseAddedToken(const JsonObject& object);

// Adds the merge "a b"; false when `text` is not two words.
bool AddMerge(std::string_view text, VocabSource& source);

// Puts `token` into the vocabulary, or says why it contradicts it; `where` names its field.
Status AddToken(const AddedToken& token, std::string_view where, VocabSource& source);

}  // namespace spry
