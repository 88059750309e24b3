#include "text/bad_words.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace spry {

Result<std::vector<std::vector<TokenId>>> EncodeBadWords(const Tokenizer& tokenizer,
                                                         std::span<const std::string> words) {
  constexpr bool kAddSpecialTokens = false;
  std::vector<std::vector<TokenId>> sequences;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    while (!word.empty() && IsWhiteSpace(DecodeUtf8(word).code)) {
      word.remove_prefix(DecodeUtf8(word).length);
    }
    std::vector<TokenId> plain = tokenizer.Encode(word, kAddSpecialTokens);
    if (plain.empty()) {
      return InvalidArgument(fmt::format("bad_words[{}] is blank; give at least one character", i));
    }
    std::vector<TokenId> spaced = tokenizer.Encode(" " + std::string(word), kAddSpecialTokens);
    const bool differs = spaced.size() == plain.size() && spaced[0] != plain[0];
    sequences.push_back(std::move(plain));
    if (differs) sequences.push_back(std::move(spaced));
  }
  return sequences;
}

}  // namespace spry
