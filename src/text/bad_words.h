// Words that an output may not contain, as the token sequences that spell them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace spry {

// As vLLM: each word without its leading white space, and with one space before it where that gives
// another first token and as many tokens (a word may begin the output, or follow other text).
// InvalidArgument for a word that has nothing but white space.
Result<std::vector<std::vector<TokenId>>> EncodeBadWords(const Tokenizer& tokenizer,
                                                         std::span<const std::string> words);

}  // namespace spry
