#include "text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/byte_pieces.h"
#include "text/scores.h"
#include "text/utf8.h"

namespace spry {
namespace {

constexpr double kUnknownPenalty = 10;        // below the worst score
constexpr float kLargestSum = 100'000;        // SentencePiece's
constexpr size_t kMaxPieceBytes = 4096;       // the longest known piece has 768
constexpr size_t kMaxPiecesBytes = 64 << 20;  // of all; the largest known vocabulary has 4 MB

// SentencePiece's, from the bytes of the piece.
double UserDefinedScore(size_t length) { return 0.1 * static_cast<double>(length - 1); }

Status CheckLengths(const VocabSource& source) {
  size_t total = 0;
  for (size_t id = 0; id < source.pieces.size(); ++id) {
    total += source.pieces[id].size();
    if (source.pieces[id].size() > kMaxPieceBytes) {
      return InvalidArgument(fmt::format("token {} has {} bytes; a Unigram piece may have {}", id,
                                         source.pieces[id].size(), kMaxPieceBytes));
    }
  }
  if (total <= kMaxPiecesBytes) return {};
  return InvalidArgument(
      fmt::format("the pieces of the vocabulary have {} bytes; a Unigram "
                  "vocabulary may have {}",
                  total, kMaxPiecesBytes));
}

// What a text can be cut into: not special tokens (the normaliser may spell one), and not byte
// pieces, since a user's literal
// "<0x40>" is six characters.
std::vector<bool> MatchingPieces(const VocabSource& source) {
  std::vector<bool> matches(source.pieces.size(), true);
  for (const AddedToken& token : source.added_tokens) {
    if (token.special || token.outside_model) matches[token.id.value()] = false;
  }
  for (size_t id = 0; id < source.pieces.size(); ++id) {
    const bool byte = source.byte_fallback && BytePiece(source.pieces[id]);
    const bool unused = id < source.unused.size() && source.unused[id];
    if (byte || unused || source.pieces[id].empty()) matches[id] = false;
  }
  return matches;
}

}  // namespace

Result<std::unique_ptr<TokenModel>> Unigram::Create(const VocabSource& source) {
  SPRY_RETURN_IF_ERROR(CheckScores(source));
  SPRY_RETURN_IF_ERROR(CheckLengths(source));
  SPRY_ASSIGN_OR_RETURN(UnknownText unknown, UnknownText::Create(source));
  const std::vector<bool> matches = MatchingPieces(source);
  std::vector<std::pair<std::string_view, int32_t>> pieces;
  for (size_t id = 0; id < matches.size(); ++id) {
    if (matches[id]) pieces.emplace_back(source.pieces[id], static_cast<int32_t>(id));
  }
  std::unique_ptr<Unigram> model(new Unigram(PrefixTrie(std::move(pieces)), unknown));
  model->scores_ = source.scores;
  model->sentence_piece_ = source.unigram_of_sentence_piece;
  model->user_defined_.resize(matches.size());
  for (const TokenId id : source.user_defined) model->user_defined_[id.value()] = true;
  // The reference of tokenizer.json takes the worst of all scores, SentencePiece of normal pieces.
  double worst = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < matches.size(); ++id) {
    if (model->sentence_piece_ && (!matches[id] || model->user_defined_[id])) continue;
    worst = std::min(worst, source.scores[id]);
  }
  model->unknown_score_ = (std::isfinite(worst) ? worst : 0) - kUnknownPenalty;
  return std::unique_ptr<TokenModel>(std::move(model));
}

// SentencePiece's sums are of single precision, which decides between paths that are equal but for
// the order of their pieces. So that they stay precise in a long text, the sums of the places that
// can still be built on start anew when they have grown large.
void Unigram::StartSumsAnew(size_t at, size_t last, std::vector<Place>& places) {
  const auto sum = static_cast<float>(places[at].score);
  if (std::abs(sum) <= kLargestSum) return;
  for (size_t i = at; i <= last; ++i) {
    if (i == at || places[i].start != kNone) {
      places[i].score = static_cast<float>(places[i].score) - sum;
    }
  }
}

void Unigram::FindPath(std::string_view word, Scratch& scratch) const {
  auto& places = scratch.places;
  places.assign(word.size() + 1, Place{});
  size_t last = 0;  // the farthest place that was reached
  for (size_t at = 0; at < word.size();) {
    if (sentence_piece_) StartSumsAnew(at, last, places);
    const double so_far = places[at].score;
    const auto length = static_cast<size_t>(DecodeUtf8(word.substr(at)).length);
    const auto offer = [&](size_t end, double score, int32_t id) {
      Place& place = places[end];
      const double sum =
          sentence_piece_ ? static_cast<float>(score) + static_cast<float>(so_far) : score + so_far;
      last = std::max(last, end);
      if (place.start != kNone && !(sum > place.score)) return;
      place = {sum, static_cast<int32_t>(at), id};
    };
    bool covered = false;  // the character alone is a piece
    trie_.Walk(word.substr(at), [&](size_t size, int32_t id) {
      covered |= size == length;
      offer(at + size, user_defined_[id] ? UserDefinedScore(size) : scores_[id], id);
    });
    if (!covered) offer(at + length, unknown_score_, kNone);
    at += length;
  }
  scratch.path.clear();
  for (auto end = static_cast<int32_t>(word.size()); end > 0; end = places[end].start) {
    scratch.path.emplace_back(end, places[end].id);
  }
}

int32_t Unigram::Find(std::string_view text) const {
  int32_t found = kNone;
  trie_.Walk(text, [&](size_t size, int32_t id) {
    if (size == text.size()) found = id;
  });
  return found;
}

void Unigram::Encode(std::string_view word, TokenModel::Scratch& scratch_base,
                     std::vector<TokenId>& ids) const {
  Scratch& scratch = static_cast<Scratch&>(scratch_base);
  FindPath(word, scratch);
  const auto& path = scratch.path;
  UnknownText::Run run;
  int32_t done = 0;
  for (size_t left = path.size(); left-- > 0;) {
    auto [end, id] = path[left];
    if (id == kNone && !sentence_piece_) {
      // A run of characters without a piece is looked up once more as a whole, as `tokenizers` do.
      while (left > 0 && path[left - 1].second == kNone) end = path[--left].first;
      id = Find(word.substr(done, end - done));
    }
    if (id == kNone) {
      unknown_.Append(word.substr(done, end - done), run, ids);
    } else {
      run.open = false;
      ids.emplace_back(id);
    }
    done = end;
  }
}

}  // namespace spry
