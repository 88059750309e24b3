#include "text/unknown_text.h"

#include <algorithm>

#include "text/byte_pieces.h"

namespace spry {

Result<UnknownText> UnknownText::Create(const VocabSource& source) {
  UnknownText unknown;
  if (source.unknown) unknown.unknown_ = source.unknown->value();
  if (source.byte_fallback) {
    const auto ids = FindBytePieces(source.pieces);
    if (std::find(ids.begin(), ids.end(), -1) == ids.end()) unknown.byte_tokens_ = ids;
  }
  if (!unknown.byte_tokens_ && !source.unknown) {
    return InvalidArgument(
        "the vocabulary has neither an unknown token nor the byte pieces <0x00> to <0xFF>; "
        "expected one of them for text that no piece covers");
  }
  return unknown;
}

void UnknownText::Append(std::string_view text, Run& run, std::vector<TokenId>& ids) const {
  if (byte_tokens_) {
    for (const char c : text) ids.emplace_back((*byte_tokens_)[static_cast<uint8_t>(c)]);
  } else if (!run.open) {
    ids.emplace_back(unknown_);
    run.open = true;
  }
}

}  // namespace spry
