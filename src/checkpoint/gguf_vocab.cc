#include "checkpoint/gguf_vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/printable.h"
#include "text/pre_tokenizers.h"
#include "text/sentencepiece_pieces.h"
#include "text/split_patterns.h"

namespace spry {
namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kTokenTypes[] = "tokenizer.ggml.token_type";
constexpr char kMerges[] = "tokenizer.ggml.merges";
constexpr char kScores[] = "tokenizer.ggml.scores";
constexpr char kSpacePrefix[] = "tokenizer.ggml.add_space_prefix";

Status ReadTokens(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const auto tokens, metadata.TextList(kTokens));
  if (!tokens) return metadata.Missing(kTokens);
  vocab.pieces.assign(tokens->begin(), tokens->end());
  return {};
}

// The types of the tokens; none when the file does not say.
Result<std::vector<PieceType>> ReadTypes(const GgufMetadata& metadata, const VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const auto numbers, metadata.IntegerList(kTokenTypes));
  std::vector<PieceType> types;
  if (!numbers) return types;
  if (numbers->size() != vocab.pieces.size()) {
    return metadata.Wrong(kTokenTypes, fmt::format("an array of {}", numbers->size()),
                          fmt::format("one for each of the {} tokens", vocab.pieces.size()));
  }
  types.reserve(numbers->size());
  for (const int64_t number : *numbers) {
    const bool known = number >= 0 && number <= static_cast<int64_t>(PieceType::kByte);
    types.push_back(known ? static_cast<PieceType>(number) : PieceType(0));
  }
  return types;
}

// In byte-level BPE only two types make a token more than a piece.
Status ApplyByteLevelTypes(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const std::vector<PieceType> types, ReadTypes(metadata, vocab));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != PieceType::kControl && types[i] != PieceType::kUserDefined) continue;
    vocab.added_tokens.push_back({.id = TokenId(static_cast<int32_t>(i)),
                                  .content = vocab.pieces[i],
                                  .special = types[i] == PieceType::kControl});
  }
  return {};
}

Status ReadMerges(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const auto merges, metadata.TextList(kMerges));
  if (!merges) return metadata.Missing(kMerges);
  vocab.merges.reserve(merges->size());
  for (const std::string_view merge : *merges) {
    // "left right"; from the second byte, since a part may itself start with a space.
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return metadata.Wrong(kMerges, Printable(merge), "two parts with a space between them");
    }
    vocab.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

Result<std::optional<TokenId>> ReadId(const GgufMetadata& metadata, const VocabSource& vocab,
                                      std::string_view key) {
  const int64_t last = static_cast<int64_t>(vocab.pieces.size()) - 1;
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> id, metadata.Integer(key, {0, last}));
  if (!id) return std::optional<TokenId>();
  return std::optional(TokenId(static_cast<int32_t>(*id)));
}

Status ReadSpecialIds(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(vocab.bos, ReadId(metadata, vocab, "tokenizer.ggml.bos_token_id"));
  SPRY_ASSIGN_OR_RETURN(vocab.eos, ReadId(metadata, vocab, "tokenizer.ggml.eos_token_id"));
  SPRY_ASSIGN_OR_RETURN(vocab.unknown, ReadId(metadata, vocab, "tokenizer.ggml.unknown_token_id"));
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    SPRY_ASSIGN_OR_RETURN(const std::optional<TokenId> id, ReadId(metadata, vocab, key));
    if (id) vocab.end_of_turn.push_back(*id);
  }
  return {};
}

Status ReadSwitches(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> add_bos,
                        metadata.Flag("tokenizer.ggml.add_bos_token"));
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> add_eos,
                        metadata.Flag("tokenizer.ggml.add_eos_token"));
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> prefix, metadata.Flag(kSpacePrefix));
  vocab.add_bos = add_bos.value_or(vocab.add_bos) && vocab.bos.has_value();
  vocab.add_eos = add_eos.value_or(vocab.add_eos) && vocab.eos.has_value();
  if (vocab.model == VocabSource::Model::kByteLevelBpe) {
    vocab.add_prefix_space = prefix.value_or(vocab.add_prefix_space);
  }
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string_view> chat_template,
                        metadata.Text("tokenizer.chat_template"));
  vocab.chat_template = chat_template.value_or("");
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string_view> tool_use,
                        metadata.Text("tokenizer.chat_template.tool_use"));
  vocab.tool_use_template = tool_use.value_or("");
  return {};
}

// llama.cpp takes a file without the key for "default".
Status ReadPreTokenizer(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string_view> pre,
                        metadata.Text("tokenizer.ggml.pre"));
  const Status known = ApplyPreTokenizer(pre.value_or("default"), vocab);
  if (known.ok()) return {};
  return Status(known.code(),
                fmt::format("{}: tokenizer.ggml.pre: {}", metadata.file(), known.message()));
}

Status ReadByteLevelBpe(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_RETURN_IF_ERROR(ApplyByteLevelTypes(metadata, vocab));
  SPRY_RETURN_IF_ERROR(ReadMerges(metadata, vocab));
  return ReadPreTokenizer(metadata, vocab);
}

// The types of a vocabulary in which they say what is a byte and what is unknown.
Status ReadPieceTypes(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const std::vector<PieceType> types, ReadTypes(metadata, vocab));
  if (types.empty() && !vocab.pieces.empty()) return metadata.Missing(kTokenTypes);
  const Status applied = ApplyPieceTypes(types, UserDefinedIn::kText, vocab);
  if (applied.ok()) return {};
  return Status(applied.code(),
                fmt::format("{}: {}: {}", metadata.file(), kTokenTypes, applied.message()));
}

Status ReadScores(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(auto scores, metadata.FloatList(kScores));
  if (!scores) return metadata.Missing(kScores);
  if (scores->size() != vocab.pieces.size()) {
    return metadata.Wrong(kScores, fmt::format("an array of {}", scores->size()),
                          fmt::format("one for each of the {} tokens", vocab.pieces.size()));
  }
  vocab.scores.assign(scores->begin(), scores->end());
  return {};
}

// What SentencePiece does to a text; `prefix` where the file does not say.
Status ReadSentencePieceText(const GgufMetadata& metadata, bool prefix, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> add_prefix, metadata.Flag(kSpacePrefix));
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> remove,
                        metadata.Flag("tokenizer.ggml.remove_extra_whitespaces"));
  SPRY_ASSIGN_OR_RETURN(const auto map,
                        metadata.IntegerList("tokenizer.ggml.precompiled_charsmap"));
  VocabSource::SentencePiece& rules = vocab.sentence_piece;
  rules.add_dummy_prefix = add_prefix.value_or(prefix);
  rules.remove_extra_whitespaces = remove.value_or(false);
  if (map) rules.chars_map.assign(map->begin(), map->end());
  UseSentencePieceText(vocab);
  return {};
}

// SentencePiece's BPE. Without their keys bos goes in front, and so does a space.
Status ReadSentencePieceBpe(const GgufMetadata& metadata, VocabSource& vocab) {
  vocab.model = VocabSource::Model::kScoredBpe;
  vocab.add_bos = vocab.bos.has_value();
  SPRY_RETURN_IF_ERROR(ReadPieceTypes(metadata, vocab));
  SPRY_RETURN_IF_ERROR(ReadScores(metadata, vocab));
  return ReadSentencePieceText(metadata, /*prefix=*/true, vocab);
}

// SentencePiece's Unigram. Without their keys eos goes behind a text, and no space in front.
Status ReadUnigram(const GgufMetadata& metadata, VocabSource& vocab) {
  vocab.model = VocabSource::Model::kUnigram;
  vocab.unigram_of_sentence_piece = true;
  vocab.add_eos = vocab.eos.has_value();
  SPRY_RETURN_IF_ERROR(ReadPieceTypes(metadata, vocab));
  SPRY_RETURN_IF_ERROR(ReadScores(metadata, vocab));
  return ReadSentencePieceText(metadata, /*prefix=*/false, vocab);
}

// Gemma 4: merges of characters, U+2581 for spaces, no cuts.
Status ReadGemma4(const GgufMetadata& metadata, VocabSource& vocab) {
  vocab.model = VocabSource::Model::kBpe;
  SPRY_RETURN_IF_ERROR(ReadPieceTypes(metadata, vocab));
  SPRY_RETURN_IF_ERROR(ReadMerges(metadata, vocab));
  vocab.normalizer.push_back(
      {.kind = NormalizerStep::Kind::kReplace, .pattern = " ", .content = std::string(kSpaceMark)});
  vocab.decoding.replacements.emplace_back(kSpaceMark, " ");
  vocab.decoding.byte_pieces = vocab.decoding.runs_break_whole = vocab.byte_fallback;
  return {};
}

struct Kind {
  std::string_view name;  // of tokenizer.ggml.model
  Status (*read)(const GgufMetadata&, VocabSource&);
};

constexpr Kind kKinds[] = {{"gpt2", ReadByteLevelBpe},
                           {"llama", ReadSentencePieceBpe},
                           {"t5", ReadUnigram},
                           {"gemma4", ReadGemma4}};

}  // namespace

Result<VocabSource> GgufVocab(const GgufMetadata& metadata) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view model,
                        metadata.RequiredText("tokenizer.ggml.model"));
  std::string supported;
  for (const Kind& kind : kKinds) {
    supported += fmt::format("{}'{}'", supported.empty() ? "" : ", ", kind.name);
    if (kind.name != model) continue;
    VocabSource vocab;
    SPRY_RETURN_IF_ERROR(ReadTokens(metadata, vocab));
    SPRY_RETURN_IF_ERROR(ReadSpecialIds(metadata, vocab));
    SPRY_RETURN_IF_ERROR(kind.read(metadata, vocab));
    SPRY_RETURN_IF_ERROR(ReadSwitches(metadata, vocab));
    return vocab;
  }
  return Unimplemented(fmt::format("{}: tokenizer.ggml.model {}, supported: {}", metadata.file(),
                                   Printable(model), supported));
}

}  // namespace spry
