// Parts of tokenizer.json that several readers of it share. Only for this folder's .cc files.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/json_object.h"
#include "text/vocab_source.h"

namespace spry {

// The steps of the member `name` of the file: those of a Sequence (under `sequence_key`),
// flattened, or the step itself; none when it is absent or null.
Result<std::vector<JsonObject>> StepsOf(const JsonObject& root, std::string_view name,
                                        std::string_view sequence_key);

Status UnsupportedType(const JsonObject& step, std::string_view type, std::string_view supported);

// The member "pattern" of a step.
struct JsonPattern {
  std::string_view text;
  bool is_regex;
};
Result<JsonPattern> ParseJsonPattern(const JsonObject& step);

// Where a Metaspace, as pre-tokenizer or as decoder, has a mark in front.
Result<VocabSource::Split::Marks> ParseMetaspacePrefix(const JsonObject& step);

// The members "normalizer" and "decoder"; the latter after the pre-tokenizer, which says what kind
// of model it is.
Status ParseNormalizer(const JsonObject& root, VocabSource& source);
Status ParseDecoder(const JsonObject& root, VocabSource& source);

}  // namespace spry
