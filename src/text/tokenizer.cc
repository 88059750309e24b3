#include "text/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/character_bpe.h"
#include "text/detokenizer.h"
#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/replace.h"
#include "text/scored_bpe.h"
#include "text/split_patterns.h"
#include "text/token_texts.h"
#include "text/unigram.h"
#include "text/utf8.h"

namespace spry {
namespace {

using Behavior = VocabSource::Split::Behavior;
using Marks = VocabSource::Split::Marks;

// The added tokens that are matched in the normalised text, or in the text as it came.
std::vector<AddedToken> Select(const VocabSource& source, const Normalizer& normalizer,
                               bool normalized) {
  std::vector<AddedToken> selected;
  for (const bool special : {true, false}) {  // of equal contents the first counts
    for (AddedToken token : source.added_tokens) {
      if (token.special != special || token.normalized != normalized) continue;
      if (normalized) token.content = normalizer.NormalizeToken(token.content);
      selected.push_back(std::move(token));
    }
  }
  return selected;
}

Status CheckId(const VocabSource& source, TokenId id, std::string_view what) {
  if (id.value() >= 0 && static_cast<size_t>(id.value()) < source.pieces.size()) return {};
  return InvalidArgument(fmt::format("{} has id {}, but the vocabulary has {} tokens", what,
                                     id.value(), source.pieces.size()));
}

Status CheckIds(const VocabSource& source) {
  for (const AddedToken& token : source.added_tokens) {
    SPRY_RETURN_IF_ERROR(
        CheckId(source, token.id, fmt::format("added token \"{}\"", token.content)));
    if (!IsValidUtf8(token.content)) {
      return InvalidArgument(fmt::format("added token {} is not UTF-8", token.id.value()));
    }
  }
  const std::pair<std::string_view, std::optional<TokenId>> named[] = {
      {"bos", source.bos}, {"eos", source.eos}, {"unknown", source.unknown}};
  for (const auto& [name, id] : named) {
    if (id) SPRY_RETURN_IF_ERROR(CheckId(source, *id, name));
  }
  if (source.add_bos && !source.bos) {
    return InvalidArgument("the vocabulary wants bos in front of a text but names no bos");
  }
  if (source.add_eos && !source.eos) {
    return InvalidArgument("the vocabulary wants eos behind a text but names no eos");
  }
  return {};
}

Result<std::unique_ptr<TokenModel>> CreateModel(const VocabSource& source) {
  switch (source.model) {
    case VocabSource::Model::kByteLevelBpe: return Bpe::Create(source);
    case VocabSource::Model::kBpe: return CharacterBpe::Create(source);
    case VocabSource::Model::kScoredBpe: return ScoredBpe::Create(source);
    case VocabSource::Model::kUnigram: return Unigram::Create(source);
  }
  return Internal("a vocabulary of no kind");
}

}  // namespace

struct Tokenizer::Impl {
  struct Step {
    std::optional<Pattern> pattern;  // none: `marks` is set
    Behavior behavior;
    bool byte_level;
    Marks marks;
  };

  std::unique_ptr<TokenModel> model;
  TokenTexts texts;
  VocabSource::Decoding decoding;
  bool byte_level;
  Normalizer normalizer;
  AddedTokenMatcher raw_tokens;
  AddedTokenMatcher normalized_tokens;
  std::vector<Step> steps;
  bool add_prefix_space;
  std::optional<TokenId> first;  // put in front when special tokens are asked for
  std::optional<TokenId> last;

  class Encoder;
};

// One call of Encode: what it needs besides the Tokenizer.
class Tokenizer::Impl::Encoder {
 public:
  Encoder(const Impl& impl, std::vector<TokenId>& ids)
      : impl_(impl), ids_(ids), scratch_(impl.model->NewScratch()) {
    for (const Step& step : impl.steps) {
      auto& matcher = matchers_.emplace_back();
      if (step.pattern) matcher.emplace(*step.pattern);
    }
  }

  void Text(std::string_view text) {
    const auto parts = impl_.raw_tokens.Split(text);
    TextPlace place;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].token) {
        ids_.push_back(*parts[i].token);
        place.before = impl_.texts.is_special(parts[i].token->value())
                           ? TextPlace::Before::kSpecialToken
                           : TextPlace::Before::kPlainToken;
        continue;
      }
      const bool last = i + 1 == parts.size();
      place.plain_token_after = !last && !impl_.texts.is_special(parts[i + 1].token->value());
      const bool at_start = i == 0;
      if (impl_.normalizer.keeps_all()) {
        Normalized(parts[i].text, at_start);
      } else {
        Normalized(impl_.normalizer.Normalize(parts[i].text, place), at_start);
      }
    }
  }

 private:
  void Normalized(std::string_view text, bool at_start) {
    for (const auto& part : impl_.normalized_tokens.Split(text)) {
      if (part.token) {
        ids_.push_back(*part.token);
      } else if (impl_.add_prefix_space && part.text[0] != ' ') {
        Piece(std::string(1, ' ').append(part.text), 0, at_start);
      } else {
        Piece(part.text, 0, at_start);
      }
      at_start = false;
    }
  }

  // Cuts `piece` by the steps from `level` on and encodes what comes out.
  void Piece(std::string_view piece, size_t level, bool at_start) {
    if (piece.empty()) return;
    if (level == impl_.steps.size()) {
      impl_.model->Encode(piece, *scratch_, ids_);
    } else if (impl_.steps[level].marks != Marks::kNone) {
      Mark(piece, level, at_start);
    } else {
      Cut(piece, level, at_start);
    }
  }

  void Mark(std::string_view piece, size_t level, bool at_start) {
    std::string marked = ReplaceAll(piece, " ", kSpaceMark);
    const Marks marks = impl_.steps[level].marks;
    const bool prefix = marks == Marks::kPrefixAll || (marks == Marks::kPrefixFirst && at_start);
    if (prefix && !marked.starts_with(kSpaceMark)) marked.insert(0, kSpaceMark);
    Piece(marked, level + 1, at_start);
  }

  void Cut(std::string_view piece, size_t level, bool at_start) {
    const Step& step = impl_.steps[level];
    std::string spelled;
    if (step.byte_level) AppendInAlphabet(piece, spelled);
    Pattern::Matcher& matcher = *matchers_[level];
    matcher.Start(step.byte_level ? spelled : piece);
    AlphabetOffset offset{spelled};
    const auto next = [&](size_t begin, size_t end) {
      Piece(piece.substr(begin, end - begin), level + 1, at_start && begin == 0);
    };
    size_t done = 0;  // what lies before is encoded
    Pattern::Span match;
    while (matcher.Next(match)) {
      if (step.byte_level) match = {offset.ToBytes(match.begin), offset.ToBytes(match.end)};
      const bool merges_back = step.behavior == Behavior::kMergedWithPrevious;
      const bool drops_between = step.behavior == Behavior::kMatchesOnly;
      if (!drops_between) next(done, merges_back ? match.end : match.begin);
      if (drops_between || step.behavior == Behavior::kIsolated) next(match.begin, match.end);
      done = step.behavior == Behavior::kMergedWithNext ? match.begin : match.end;
    }
    if (step.behavior != Behavior::kMatchesOnly) next(done, piece.size());
  }

  // Turns ascending offsets in text spelled in the alphabet into offsets in the bytes it spells.
  struct AlphabetOffset {
    std::string_view spelled;
    size_t position = 0;
    size_t bytes = 0;

    size_t ToBytes(size_t target) {
      for (; position < target; ++position) bytes += (spelled[position] & 0xC0) != 0x80;
      return bytes;
    }
  };

  const Impl& impl_;
  std::vector<TokenId>& ids_;
  std::vector<std::optional<Pattern::Matcher>> matchers_;  // one a step, where it has a pattern
  std::unique_ptr<TokenModel::Scratch> scratch_;
};

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const VocabSource& source) {
  SPRY_RETURN_IF_ERROR(CheckIds(source));
  SPRY_ASSIGN_OR_RETURN(auto model, CreateModel(source));
  SPRY_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::Create(source));
  std::vector<Impl::Step> steps;
  for (const VocabSource::Split& split : source.splits) {
    Impl::Step step{std::nullopt, split.behavior, split.byte_level, split.marks};
    if (split.marks == Marks::kNone) {
      SPRY_ASSIGN_OR_RETURN(step.pattern, Pattern::Compile(split.pattern));
    }
    steps.push_back(std::move(step));
  }
  const AddedTokenMatcher raw_tokens(Select(source, normalizer, /*normalized=*/false));
  const AddedTokenMatcher normalized_tokens(Select(source, normalizer, /*normalized=*/true));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  tokenizer->impl_.reset(new Impl{
      .model = std::move(model),
      .texts = TokenTexts(source, normalizer),
      .decoding = source.decoding,
      .byte_level = source.model == VocabSource::Model::kByteLevelBpe,
      .normalizer = std::move(normalizer),
      .raw_tokens = raw_tokens,
      .normalized_tokens = normalized_tokens,
      .steps = std::move(steps),
      .add_prefix_space = source.add_prefix_space,
      .first = source.add_bos ? source.bos : std::nullopt,
      .last = source.add_eos ? source.eos : std::nullopt,
  });
  return tokenizer;
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 2);
  if (add_special_tokens && impl_->first) ids.push_back(*impl_->first);
  Impl::Encoder encoder(*impl_, ids);
  if (IsValidUtf8(text)) {
    encoder.Text(text);
  } else {
    std::string repaired;
    AppendLossy(text, repaired);
    encoder.Text(repaired);
  }
  if (add_special_tokens && impl_->last) ids.push_back(*impl_->last);
  return ids;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, skip_special_tokens);
  std::string text;
  for (const TokenId id : ids) detokenizer.Append(id, text);
  detokenizer.Finish(text);
  return text;
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  const bool known = id.value() >= 0 && id.value() < vocab_size();
  return known ? impl_->texts[id.value()] : std::string_view();
}

bool Tokenizer::IsSpecial(TokenId id) const {
  return id.value() >= 0 && id.value() < vocab_size() && impl_->texts.is_special(id.value());
}

int Tokenizer::vocab_size() const { return impl_->texts.size(); }

const TokenTexts& Tokenizer::texts() const { return impl_->texts; }
const VocabSource::Decoding& Tokenizer::decoding() const { return impl_->decoding; }
bool Tokenizer::is_byte_level() const { return impl_->byte_level; }

}  // namespace spry
