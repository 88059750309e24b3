#include "checkpoint/gguf_vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/printable.h"
#include "text/pre_tokenizers.h"

namespace spry {
namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kTokenTypes[] = "tokenizer.ggml.token_type";
constexpr char kMerges[] = "tokenizer.ggml.merges";

// Values of tokenizer.ggml.token_type that make a token more than a piece of BPE.
constexpr int64_t kControl = 3;      // never in text that users see
constexpr int64_t kUserDefined = 4;  // matched whole, and shown

Status ReadTokens(const GgufMetadata& metadata, VocabSource& vocab) {
  SPRY_ASSIGN_OR_RETURN(const auto tokens, metadata.TextList(kTokens));
  if (!tokens) return metadata.Missing(kTokens);
  vocab.pieces.assign(tokens->begin(), tokens->end());
  SPRY_ASSIGN_OR_RETURN(const auto types, metadata.IntegerList(kTokenTypes));
  if (!types) return {};
  if (types->size() != tokens->size()) {
    return metadata.Wrong(kTokenTypes, fmt::format("an array of {}", types->size()),
                          fmt::format("one for each of the {} tokens", tokens->size()));
  }
  for (size_t i = 0; i < types->size(); ++i) {
    const int64_t type = (*types)[i];
    if (type != kControl && type != kUserDefined) continue;
    vocab.added_tokens.push_back({.id = TokenId(static_cast<int32_t>(i)),
                                  .content = vocab.pieces[i],
                                  .special = type == kControl});
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
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> prefix,
                        metadata.Flag("tokenizer.ggml.add_space_prefix"));
  vocab.add_bos = add_bos.value_or(vocab.add_bos) && vocab.bos.has_value();
  vocab.add_eos = add_eos.value_or(vocab.add_eos) && vocab.eos.has_value();
  vocab.add_prefix_space = prefix.value_or(vocab.add_prefix_space);
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string_view> chat_template,
                        metadata.Text("tokenizer.chat_template"));
  vocab.chat_template = chat_template.value_or("");
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string_view> tool_use,
                        metadata.Text("tokenizer.chat_template.tool_use"));
  vocab.tool_use_template = tool_use.value_or("");
  return {};
}

}  // namespace

Result<VocabSource> GgufVocab(const GgufMetadata& metadata) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view model,
                        metadata.RequiredText("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return Unimplemented(
        fmt::format("{}: tokenizer.ggml.model {}, supported: 'gpt2' (byte-level BPE)",
                    metadata.file(), Printable(model)));
  }
  VocabSource vocab;
  SPRY_RETURN_IF_ERROR(ReadTokens(metadata, vocab));
  SPRY_RETURN_IF_ERROR(ReadMerges(metadata, vocab));
  SPRY_RETURN_IF_ERROR(ReadSpecialIds(metadata, vocab));
  // llama.cpp takes a file without the key for "default".
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string_view> pre,
                        metadata.Text("tokenizer.ggml.pre"));
  const Status known = ApplyPreTokenizer(pre.value_or("default"), vocab);
  if (!known.ok()) {
    return Status(known.code(),
                  fmt::format("{}: tokenizer.ggml.pre: {}", metadata.file(), known.message()));
  }
  SPRY_RETURN_IF_ERROR(ReadSwitches(metadata, vocab));
  return vocab;
}

}  // namespace spry
