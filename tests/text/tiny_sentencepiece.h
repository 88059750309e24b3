// Small SentencePiece vocabularies, as data and as the bytes of a tokenizer.model.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/sentencepiece_pieces.h"
#include "text/vocab_source.h"

namespace spry {

inline std::string Varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<char>(number | 0x80));
  bytes.push_back(static_cast<char>(number));
  return bytes;
}

inline std::string ProtobufField(int number, uint64_t value) {
  return Varint(static_cast<uint64_t>(number) << 3) + Varint(value);
}

inline std::string ProtobufField(int number, std::string_view bytes) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(bytes.size()) + std::string(bytes);
}

inline std::string ProtobufField(int number, float value) {
  std::string field = Varint(static_cast<uint64_t>(number) << 3 | 5);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) field.push_back(static_cast<char>(bits >> shift));
  return field;
}

struct TinyPiece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

// <unk>, <s>, </s>, then `pieces`, then, if asked for, the 256 byte pieces.
inline std::vector<TinyPiece> TinyPieces(const std::vector<TinyPiece>& pieces, bool with_bytes) {
  std::vector<TinyPiece> all = {{"<unk>", 0, PieceType::kUnknown},
                                {"<s>", 0, PieceType::kControl},
                                {"</s>", 0, PieceType::kControl}};
  all.insert(all.end(), pieces.begin(), pieces.end());
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; with_bytes && byte < 256; ++byte) {
    all.push_back(
        {std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", 0, PieceType::kByte});
  }
  return all;
}

inline std::string PieceMessage(const TinyPiece& piece) {
  return ProtobufField(1, ProtobufField(1, piece.text) + ProtobufField(2, piece.score) +
                              ProtobufField(3, static_cast<uint64_t>(piece.type)));
}

// `trainer` and `normalizer` are the fields of those messages.
inline std::string TinyModel(const std::vector<TinyPiece>& pieces, std::string_view trainer,
                             std::string_view normalizer) {
  std::string bytes;
  for (const TinyPiece& piece : pieces) bytes += PieceMessage(piece);
  return bytes + ProtobufField(2, trainer) + ProtobufField(3, normalizer);
}

// Llama's way: a prefix, nothing trimmed, user-defined pieces as in GGUF.
inline VocabSource TinyLlama(const std::vector<TinyPiece>& pieces) {
  VocabSource source;
  source.model = VocabSource::Model::kScoredBpe;
  std::vector<PieceType> types;
  for (const TinyPiece& piece : TinyPieces(pieces, /*with_bytes=*/true)) {
    source.pieces.push_back(piece.text);
    source.scores.push_back(piece.score);
    types.push_back(piece.type);
  }
  const Status applied = ApplyPieceTypes(types, UserDefinedIn::kText, source);
  CHECK(applied.ok());
  source.sentence_piece.remove_extra_whitespaces = false;
  UseSentencePieceText(source);
  return source;
}

}  // namespace spry
