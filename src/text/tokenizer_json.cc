#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/byte_alphabet.h"

namespace spry {
namespace {

// How far ids may run ahead of the number of tokens; keeps a stray id from claiming memory.
constexpr size_t kMaxHoles = 1 << 16;

// Whether each of the 256 bytes has a token, so that no text needs the unknown token.
bool HasAllBytes(const VocabSource& source) {
  std::vector<bool> seen(256);
  for (const std::string& piece : source.pieces) {
    std::string bytes;
    if (piece.size() <= 2 && AppendAlphabetBytes(piece, bytes) && bytes.size() == 1) {
      seen[static_cast<uint8_t>(bytes[0])] = true;
    }
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

// "a b" or ["a", "b"]; false: neither.
bool ParseMerge(simdjson::dom::element element, VocabSource& source) {
  std::string_view text;
  if (element.get(text) == simdjson::SUCCESS) return AddMerge(text, source);
  simdjson::dom::array pair;
  std::string_view left, right;
  if (element.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair.at(0).get(left) != simdjson::SUCCESS || pair.at(1).get(right) != simdjson::SUCCESS) {
    return false;
  }
  source.merges.emplace_back(left, right);
  return true;
}

// Parts of the model that would change what BPE does.
Status CheckBpe(const JsonObject& model) {
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view text, model.String(affix, ""));
    if (!text.empty()) {
      return model.Unsupported(affix, fmt::format("is \"{}\"; supported: none", text));
    }
  }
  if (const auto dropout = model.Find("dropout")) {
    double value = 0;
    if (dropout->get(value) != simdjson::SUCCESS || value != 0) {
      return model.Unsupported("dropout", "is set; supported: none");
    }
  }
  return {};
}

// Files of before there were several types say none for BPE.
Status ParseBpe(const JsonObject& model, VocabSource& source) {
  SPRY_RETURN_IF_ERROR(CheckBpe(model));
  SPRY_ASSIGN_OR_RETURN(const JsonObject vocab, model.Object("vocab"));
  SPRY_RETURN_IF_ERROR(ParseVocab(vocab, source));
  SPRY_ASSIGN_OR_RETURN(const simdjson::dom::array merges, model.Array("merges"));
  for (const auto merge : merges) {
    if (ParseMerge(merge, source)) continue;
    return model.Wrong(fmt::format("merges[{}]", source.merges.size()),
                       "is no merge; expected \"a b\" or [\"a\", \"b\"]");
  }
  SPRY_ASSIGN_OR_RETURN(source.ignore_merges, model.Bool("ignore_merges", false));
  SPRY_ASSIGN_OR_RETURN(const std::string_view unknown, model.String("unk_token", ""));
  if (!unknown.empty()) {
    const auto it = std::find(source.pieces.begin(), source.pieces.end(), unknown);
    const auto id = static_cast<int32_t>(it - source.pieces.begin());
    if (it != source.pieces.end()) source.unknown = TokenId(id);
  }
  SPRY_ASSIGN_OR_RETURN(source.fuse_unknown, model.Bool("fuse_unk", false));
  SPRY_ASSIGN_OR_RETURN(source.byte_fallback, model.Bool("byte_fallback", false));
  if (source.model != VocabSource::Model::kByteLevelBpe) return {};
  if ((source.fuse_unknown || source.byte_fallback) && !HasAllBytes(source)) {
    return model.Unsupported(source.fuse_unknown ? "fuse_unk" : "byte_fallback",
                             "is true and the byte-level vocabulary lacks bytes; supported: false");
  }
  return {};
}

// [["piece", score], ...], the id being the place.
Status ParseUnigramPieces(const JsonObject& model, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const simdjson::dom::array vocab, model.Array("vocab"));
  for (const auto element : vocab) {
    simdjson::dom::array pair;
    std::string_view piece;
    double score = 0;
    if (element.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(piece) != simdjson::SUCCESS || pair.at(1).get(score) != simdjson::SUCCESS) {
      return model.Wrong(fmt::format("vocab[{}]", source.pieces.size()),
                         "is no piece; expected [\"piece\", score]");
    }
    source.pieces.emplace_back(piece);
    source.scores.push_back(score);
  }
  return {};
}

Status ParseUnigram(const JsonObject& model, VocabSource& source) {
  if (source.model == VocabSource::Model::kByteLevelBpe) {
    return model.Unsupported("type", "is \"Unigram\" behind ByteLevel; supported: with Metaspace");
  }
  source.model = VocabSource::Model::kUnigram;
  SPRY_RETURN_IF_ERROR(ParseUnigramPieces(model, source));
  SPRY_ASSIGN_OR_RETURN(source.byte_fallback, model.Bool("byte_fallback", false));
  if (!model.Find("unk_id")) return {};
  SPRY_ASSIGN_OR_RETURN(const int32_t unknown, model.Id("unk_id"));
  if (static_cast<size_t>(unknown) >= source.pieces.size()) {
    return model.Wrong("unk_id", fmt::format("is {}, but the vocabulary has {} tokens", unknown,
                                             source.pieces.size()));
  }
  source.unknown = TokenId(unknown);
  return {};
}

Status ParseModel(const JsonObject& model, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view type, model.String("type", "BPE"));
  if (type == "BPE") return ParseBpe(model, source);
  if (type == "Unigram") return ParseUnigram(model, source);
  return model.Unsupported("type", fmt::format("is \"{}\"; supported: \"BPE\", \"Unigram\"", type));
}

}  // namespace

Status ParseVocab(const JsonObject& vocab, VocabSource& source) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  entries.reserve(vocab.raw().size());
  size_t size = 0;
  for (const auto field : vocab.raw()) {
    int64_t id = 0;
    if (field.value.get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) {
      const auto result = TokenIdIn(field.value, vocab.PathOf(field.key));
      return result.status();
    }
    entries.emplace_back(field.key, static_cast<int32_t>(id));
    size = std::max(size, static_cast<size_t>(id) + 1);
  }
  if (size > entries.size() + kMaxHoles) {
    return vocab.Wrong("(largest id)", fmt::format("is {}, but there are only {} tokens", size - 1,
                                                   entries.size()));
  }
  source.pieces.resize(size);
  for (const auto& [piece, id] : entries) {
    std::string& slot = source.pieces[id];
    if (!slot.empty() && slot != piece) {
      return vocab.Wrong(piece, fmt::format("has id {}, which \"{}\" has too", id, slot));
    }
    slot = piece;
  }
  return {};
}

Result<AddedToken> ParseAddedToken(const JsonObject& object) {
  AddedToken token{};
  SPRY_ASSIGN_OR_RETURN(token.content, object.String("content"));
  SPRY_ASSIGN_OR_RETURN(token.special, object.Bool("special", false));
  SPRY_ASSIGN_OR_RETURN(token.lstrip, object.Bool("lstrip", false));
  SPRY_ASSIGN_OR_RETURN(token.rstrip, object.Bool("rstrip", false));
  SPRY_ASSIGN_OR_RETURN(token.single_word, object.Bool("single_word", false));
  SPRY_ASSIGN_OR_RETURN(token.normalized, object.Bool("normalized", !token.special));
  return token;
}

Status AddToken(const AddedToken& token, std::string_view where, VocabSource& source) {
  const auto id = static_cast<size_t>(token.id.value());
  if (id > source.pieces.size() + kMaxHoles / (source.added_tokens.size() + 1)) {
    return InvalidArgument(fmt::format("{}: \"{}\" has id {}, but there are only {} tokens", where,
                                       token.content, id, source.pieces.size()));
  }
  if (id >= source.pieces.size()) source.pieces.resize(id + 1);
  std::string& slot = source.pieces[id];
  if (!slot.empty() && slot != token.content) {
    return InvalidArgument(fmt::format("{}: \"{}\" has id {}, but the vocabulary has \"{}\" there",
                                       where, token.content, id, slot));
  }
  source.added_tokens.push_back(token);
  source.added_tokens.back().outside_model = slot.empty();
  slot = token.content;
  return {};
}

bool AddMerge(std::string_view text, VocabSource& source) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  source.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  return true;
}

Result<VocabSource> ParseTokenizerJson(const JsonObject& root) {
  VocabSource source;
  SPRY_RETURN_IF_ERROR(ParseTokenizerSteps(root, source));
  SPRY_ASSIGN_OR_RETURN(const JsonObject model, root.Object("model"));
  SPRY_RETURN_IF_ERROR(ParseModel(model, source));
  if (root.Find("added_tokens")) {
    SPRY_ASSIGN_OR_RETURN(const simdjson::dom::array tokens, root.Array("added_tokens"));
    size_t index = 0;
    for (const auto element : tokens) {
      SPRY_ASSIGN_OR_RETURN(const JsonObject object, root.ObjectAt("added_tokens", index, element));
      SPRY_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(object));
      SPRY_ASSIGN_OR_RETURN(const int32_t id, object.Id("id"));
      token.id = TokenId(id);
      SPRY_RETURN_IF_ERROR(AddToken(token, object.PathOf("content"), source));
      ++index;
    }
  }
  if (!source.scores.empty()) source.scores.resize(source.pieces.size());
  return source;
}

}  // namespace spry
