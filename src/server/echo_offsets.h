// Where the tokens of an echoed prompt begin in its text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "server/api_request.h"
#include "text/tokenizer.h"

namespace spry {

// Of valid UTF-8.
int64_t CountCharacters(std::string_view text);

// Makes the prompt's text its echo.
void MakeEcho(ApiPrompt& prompt);

// One offset a token, in characters. A token that is only part of a character moves nothing until
// the character is complete. `tokenizer` may be null: zeros.
std::vector<int64_t> EchoOffsets(const ApiPrompt& prompt, const Tokenizer* tokenizer,
                                 bool skip_special_tokens);

}  // namespace spry
