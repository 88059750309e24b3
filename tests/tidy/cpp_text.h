// Just enough of C++'s surface to count with: comments and literals taken out, includes, and where
// functions begin and end. No parser: a file that braces alone don't explain is reported, not
// guessed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spry::tidy {

enum class Blank { kComments, kCommentsAndLiterals };

// The text with comments, or comments and the insides of string and character literals, replaced by
// spaces. Line ends stay, so every offset and line number still holds.
std::string Blanked(std::string_view text, Blank what);

struct Include {
  std::string path;
  int line = 0;
  bool quoted = false;  // "..." rather than <...>
};

std::vector<Include> Includes(std::string_view text);

struct FunctionSpan {
  std::string head;  // its declaration, in one line
  int first_line = 0;
  int line_count = 0;  // declaration and body
};

struct FunctionScan {
  std::vector<FunctionSpan> functions;  // outermost ones: a lambda counts with its function
  bool balanced = true;                 // false: braces or parentheses don't match up
};

FunctionScan Functions(std::string_view text);

}  // namespace spry::tidy
