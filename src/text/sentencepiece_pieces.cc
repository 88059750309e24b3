#include "text/sentencepiece_pieces.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/byte_pieces.h"
#include "text/split_patterns.h"

namespace spry {

Status ApplyPieceTypes(const std::vector<PieceType>& types, UserDefinedIn user_defined,
                       VocabSource& source) {
  source.unused.assign(types.size(), false);
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string& piece = source.pieces[i];
    const TokenId id(static_cast<int32_t>(i));
    switch (types[i]) {
      case PieceType::kNormal: break;
      case PieceType::kUnused: source.unused[i] = true; break;
      case PieceType::kByte:
        if (!BytePiece(piece)) {
          return InvalidArgument(
              fmt::format("token {} is a byte piece but not spelled <0x00> to <0xFF>", i));
        }
        source.byte_fallback = true;
        break;
      case PieceType::kUnknown:
        if (!source.unknown) source.unknown = id;
        [[fallthrough]];
      case PieceType::kControl:
        source.added_tokens.push_back({.id = id, .content = piece, .special = true});
        break;
      case PieceType::kUserDefined:
        if (user_defined != UserDefinedIn::kText) source.user_defined.push_back(id);
        if (user_defined == UserDefinedIn::kUnigram) break;
        // With a mark in it, it matches only where spaces have become marks.
        source.added_tokens.push_back({.id = id,
                                       .content = piece,
                                       .normalized = user_defined == UserDefinedIn::kBpe ||
                                                     piece.find(kSpaceMark) != std::string::npos});
        break;
      default:
        return InvalidArgument(fmt::format("token {} has type {}; types are 1 to 6", i,
                                           static_cast<int32_t>(types[i])));
    }
  }
  return {};
}

void UseSentencePieceText(VocabSource& source) {
  using Start = VocabSource::Decoding::Start;
  const VocabSource::SentencePiece& rules = source.sentence_piece;
  source.normalizer.push_back({.kind = NormalizerStep::Kind::kSentencePiece});
  source.decoding.replacements.emplace_back(kSpaceMark, " ");
  source.decoding.byte_pieces = source.byte_fallback;
  source.decoding.start = rules.remove_extra_whitespaces ? Start::kMarksDroppedToText
                          : rules.add_dummy_prefix       ? Start::kMarkDropped
                                                         : Start::kKept;
}

}  // namespace spry
