#include "text/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/utf8.h"

namespace spry {
namespace {

// The added tokens that are matched in the normalised text, or in the text as it came.
std::vector<AddedToken> Select(const VocabSource& source, bool normalized) {
  std::vector<AddedToken> selected;
  for (const bool special : {true, false}) {  // of equal contents the first counts
    for (AddedToken token : source.added_tokens) {
      if (token.special != special || token.normalized != normalized) continue;
      if (normalized && source.nfc) token.content = NormalizeNfc(token.content);
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

}  // namespace

struct Tokenizer::Impl {
  struct Step {
    Pattern pattern;
    bool matches_only;
    bool byte_level;
  };

  Bpe bpe;
  AddedTokenMatcher raw_tokens;
  AddedTokenMatcher normalized_tokens;
  std::vector<Step> steps;
  std::vector<bool> special;  // by id
  bool nfc;
  bool add_prefix_space;
  std::optional<TokenId> first;  // put in front when special tokens are asked for
  std::optional<TokenId> last;

  class Encoder;
};

// One call of Encode: what it needs besides the Tokenizer.
class Tokenizer::Impl::Encoder {
 public:
  Encoder(const Impl& impl, std::vector<TokenId>& ids) : impl_(impl), ids_(ids) {
    for (const Step& step : impl.steps) matchers_.emplace_back(step.pattern);
  }

  void Text(std::string_view text) {
    for (const auto& part : impl_.raw_tokens.Split(text)) {
      if (part.token) {
        ids_.push_back(*part.token);
      } else if (impl_.nfc) {
        Normalized(NormalizeNfc(part.text));
      } else {
        Normalized(part.text);
      }
    }
  }

 private:
  void Normalized(std::string_view text) {
    for (const auto& part : impl_.normalized_tokens.Split(text)) {
      if (part.token) {
        ids_.push_back(*part.token);
      } else if (impl_.add_prefix_space && part.text[0] != ' ') {
        Piece(std::string(1, ' ').append(part.text), 0);
      } else {
        Piece(part.text, 0);
      }
    }
  }

  // Cuts `piece` by the steps from `level` on and encodes what comes out.
  void Piece(std::string_view piece, size_t level) {
    if (piece.empty()) return;
    if (level == impl_.steps.size()) {
      impl_.bpe.Encode(piece, scratch_, ids_);
      return;
    }
    const Step& step = impl_.steps[level];
    std::string spelled;
    if (step.byte_level) AppendInAlphabet(piece, spelled);
    Pattern::Matcher& matcher = matchers_[level];
    matcher.Start(step.byte_level ? spelled : piece);
    AlphabetOffset offset{spelled};
    size_t done = 0;
    Pattern::Span match;
    while (matcher.Next(match)) {
      if (step.byte_level) match = {offset.ToBytes(match.begin), offset.ToBytes(match.end)};
      if (!step.matches_only) Piece(piece.substr(done, match.begin - done), level + 1);
      Piece(piece.substr(match.begin, match.end - match.begin), level + 1);
      done = match.end;
    }
    if (!step.matches_only) Piece(piece.substr(done), level + 1);
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
  std::vector<Pattern::Matcher> matchers_;  // one a step
  Bpe::Scratch scratch_;
};

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const VocabSource& source) {
  SPRY_RETURN_IF_ERROR(CheckIds(source));
  SPRY_ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(source));
  std::vector<Impl::Step> steps;
  for (const VocabSource::Split& split : source.splits) {
    SPRY_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Compile(split.pattern));
    steps.push_back({std::move(pattern), split.matches_only, split.byte_level});
  }
  std::vector<bool> special(source.pieces.size());
  for (const AddedToken& token : source.added_tokens) special[token.id.value()] = token.special;

  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  tokenizer->impl_.reset(new Impl{
      .bpe = std::move(bpe),
      .raw_tokens = AddedTokenMatcher(Select(source, /*normalized=*/false)),
      .normalized_tokens = AddedTokenMatcher(Select(source, /*normalized=*/true)),
      .steps = std::move(steps),
      .special = std::move(special),
      .nfc = source.nfc,
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
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special_tokens || !IsSpecial(id)) bytes.append(TokenBytes(id));
  }
  if (IsValidUtf8(bytes)) return bytes;
  std::string text;
  AppendLossy(bytes, text);
  return text;
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  const bool known = id.value() >= 0 && id.value() < impl_->bpe.size();
  return known ? impl_->bpe.Bytes(id.value()) : std::string_view();
}

bool Tokenizer::IsSpecial(TokenId id) const {
  return id.value() >= 0 && id.value() < impl_->bpe.size() && impl_->special[id.value()];
}

int Tokenizer::vocab_size() const { return impl_->bpe.size(); }

}  // namespace spry
