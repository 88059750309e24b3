// Cuts a template into tokens, with jinja2's rules for white space around tags as chat templates
// set them: trim_blocks (the line end after a block goes) and lstrip_blocks (white space before a
// block at the start of a line goes).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spry::jinja {

enum class TokenKind {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kText,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a string, its value
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

// Line ends become \n, and one at the end of the template goes. Errors begin with their line.
Result<std::vector<Token>> Tokenize(std::string_view source);

// For messages: "'endif'", "end of template".
std::string Describe(const Token& token);

// An error at a line of the template.
Status ErrorAt(int line, std::string_view message);

}  // namespace spry::jinja
