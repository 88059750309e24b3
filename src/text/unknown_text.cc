#include "text/unknown_text.h"

#include <algorithm>

#include "text/byte_pieces.h"

namespace spry {

Result<UnknownText> UnknownText::Create(const VocabSource& source) {
  UnknownText unknown;
  if (source.unknown) unknown.unknown_ = source.unknown->value();
  unknown.byte_tokens_.fill(-1);
  if (source.byte_fallback) unknown.byte_tokens_ = FindBytePieces(source.pieces);
  const auto& bytes = unknown.byte_tokens_;
  if (!source.unknown && std::find(bytes.begin(), bytes.end(), -1) != bytes.end()) {
    return InvalidArgument(
        "the vocabulary has neither an unknown token nor the byte pieces <0x00> to <0xFF>; "
        "expected one of them for text that no piece covers");
  }
  return unknown;
}

void UnknownText::Append(std::string_view text, Run& run, std::vector<TokenId>& ids) const {
  const auto token = [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)]; };
  if (std::all_of(text.begin(), text.end(), [&](char c) { return token(c) >= 0; })) {
    for (const char c : text) ids.emplace_back(token(c));
    run.open = false;
  } else if (!run.open) {
    ids.emplace_back(unknown_);
    run.open = true;
  }
}

}  // namespace spry
