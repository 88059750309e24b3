// Where the Unicode data of the reference tokenizer differs from that of the libraries we use.
// Its Oniguruma knows Unicode 16, its digit test and its graphemes Unicode 17, its punctuation test
// Unicode 8 and its NFC Unicode 9; PCRE2 10.42 knows Unicode 14 and utf8proc 2.8 Unicode 15.
// Additions are written so that a newer library, which has them already, gives the same result.
#pragma once

#include <string>
#include <string_view>

namespace spry {

// The body of a PCRE2 class (without brackets) for a general category, "L" or "Lu" style, or for
// \p{Alphabetic}'s part of \w.
std::string CategoryClass(std::string_view category);

// The same for a script by its long name: "Han".
std::string ScriptClass(std::string_view script);

// Patterns of whole pre-tokenizers: one digit (Digits), one punctuation character (Punctuation).
std::string DigitPattern();
std::string PunctuationPattern();

// White space and word characters (letters, marks, digits, joiners) for the flags of added tokens.
bool IsWhiteSpace(char32_t code);
bool IsWordCharacter(char32_t code);

// True for characters that the reference's NFC does not know: they neither compose nor are
// reordered, and nothing composes across them.
bool IsInertInNfc(char32_t code);

// True for marks that the reference's grapheme rules know (Unicode 17) and utf8proc does not.
bool IsNewerMark(char32_t code);

}  // namespace spry
