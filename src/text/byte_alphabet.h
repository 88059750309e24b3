// GPT-2's byte-level alphabet: each byte has a printable character that stands for it in
// vocabularies. Printable Latin-1 bytes stand for themselves; the other 68 bytes, in ascending
// order, are U+0100 upwards (so a space is U+0120).
#pragma once

#include <string>
#include <string_view>

namespace spry {

// Appends the bytes that `piece` (UTF-8) spells. False, with `bytes` unchanged, when a character
// is not of the alphabet.
bool AppendAlphabetBytes(std::string_view piece, std::string& bytes);

// Appends `bytes` spelled in the alphabet, as UTF-8: one or two bytes each.
void AppendInAlphabet(std::string_view bytes, std::string& piece);

}  // namespace spry
