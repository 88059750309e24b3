#include "text/normalizer.h"

#include "text/replace.h"
#include "text/split_patterns.h"
#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace spry {
namespace {

using Before = TextPlace::Before;

std::string ReplaceMatches(const Pattern& pattern, std::string_view text, std::string_view to) {
  Pattern::Matcher matcher(pattern);
  matcher.Start(text);
  std::string replaced;
  size_t done = 0;
  Pattern::Span match;
  while (matcher.Next(match)) {
    replaced.append(text.substr(done, match.begin - done)).append(to);
    done = match.end;
  }
  return replaced.append(text.substr(done));
}

// `text` without spaces in front (unless `keep_front`), with one space for each run within.
std::string CollapseSpaces(std::string_view text, bool keep_front) {
  std::string collapsed;
  bool after_space = !keep_front;
  for (const char c : text) {
    if (c == ' ' && after_space) continue;
    after_space = c == ' ';
    collapsed.push_back(c);
  }
  return collapsed;
}

size_t TrailingWhiteSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && IsWhiteSpace(LastCharacter(text.substr(0, end)))) {
    do --end;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  }
  return text.size() - end;
}

std::vector<AddedToken> UserDefined(const VocabSource& source) {
  std::vector<AddedToken> tokens;
  for (const TokenId id : source.user_defined) {
    tokens.push_back({.id = id, .content = source.pieces[id.value()]});
  }
  return tokens;
}

}  // namespace

Normalizer::Normalizer(const VocabSource& source)
    : sentence_piece_(source.sentence_piece), user_defined_(UserDefined(source)) {}

Result<Normalizer> Normalizer::Create(const VocabSource& source) {
  Normalizer normalizer(source);
  if (!source.sentence_piece.chars_map.empty()) {
    SPRY_ASSIGN_OR_RETURN(normalizer.sentence_piece_map_,
                          PrecompiledMap::Create(source.sentence_piece.chars_map));
  }
  for (const NormalizerStep& step : source.normalizer) {
    Step compiled{step, std::nullopt, std::nullopt};
    if (step.kind == NormalizerStep::Kind::kReplacePattern) {
      SPRY_ASSIGN_OR_RETURN(compiled.pattern, Pattern::Compile(step.pattern));
    } else if (step.kind == NormalizerStep::Kind::kPrecompiled) {
      SPRY_ASSIGN_OR_RETURN(compiled.map, PrecompiledMap::Create(step.content));
    }
    normalizer.steps_.push_back(std::move(compiled));
  }
  return normalizer;
}

std::string Normalizer::Normalize(std::string_view text, const TextPlace& place) const {
  std::string normal(text);
  for (const Step& step : steps_) normal = Apply(step, std::move(normal), place);
  return normal;
}

std::string Normalizer::NormalizeToken(std::string_view content) const {
  std::string normal(content);
  for (const Step& step : steps_) {
    // SentencePiece's own tokens are spelled as they come out of it.
    if (step.step.kind == NormalizerStep::Kind::kSentencePiece) continue;
    normal = Apply(step, std::move(normal), {});
  }
  return normal;
}

std::string Normalizer::Apply(const Step& step, std::string text, const TextPlace& place) const {
  switch (step.step.kind) {
    case NormalizerStep::Kind::kNfc: return NormalizeNfc(text);
    case NormalizerStep::Kind::kPrepend: return text.empty() ? text : step.step.content + text;
    case NormalizerStep::Kind::kReplace:
      return ReplaceAll(text, step.step.pattern, step.step.content);
    case NormalizerStep::Kind::kReplacePattern:
      return ReplaceMatches(*step.pattern, text, step.step.content);
    case NormalizerStep::Kind::kStripRight:
      text.resize(text.size() - TrailingWhiteSpace(text));
      return text;
    case NormalizerStep::Kind::kPrecompiled: return step.map->ReplaceGraphemes(text);
    case NormalizerStep::Kind::kSentencePiece: return SentencePiece(text, place);
  }
  return text;
}

std::string Normalizer::MapCharacters(std::string_view text) const {
  if (!sentence_piece_map_) return std::string(text);
  std::string mapped;
  mapped.reserve(text.size());
  for (const auto& part : user_defined_.Split(text)) {
    std::string_view rest = part.text;
    if (part.token) mapped.append(rest);
    while (!part.token && !rest.empty()) {
      const auto match = sentence_piece_map_->Longest(rest);
      const size_t length = match ? match->length : DecodeUtf8(rest).length;
      mapped.append(match ? match->replacement : rest.substr(0, length));
      rest.remove_prefix(length);
    }
  }
  return mapped;
}

// Text between tokens that stand for themselves is the inside of a text: nothing is trimmed or put
// in front where it touches them. Behind a special token a text starts anew; what starts with a
// space already has its prefix there.
std::string Normalizer::SentencePiece(std::string_view text, const TextPlace& place) const {
  const VocabSource::SentencePiece& rules = sentence_piece_;
  const std::string_view space = rules.escape_whitespaces ? kSpaceMark : " ";
  const bool inside = place.before == Before::kPlainToken;
  std::string normal = MapCharacters(text);
  if (rules.remove_extra_whitespaces) {
    normal = CollapseSpaces(normal, inside);
    if (normal.empty()) return normal;
  }
  const bool special = place.before == Before::kSpecialToken;
  const bool prefix = rules.add_dummy_prefix && !inside &&
                      (!special || (rules.prefix_after_special && normal.front() != ' '));
  if (rules.escape_whitespaces) normal = ReplaceAll(normal, " ", space);
  if (rules.remove_extra_whitespaces && !place.plain_token_after) {
    while (normal.ends_with(space)) normal.resize(normal.size() - space.size());
  }
  if (!prefix) return normal;
  return rules.whitespace_as_suffix ? normal.append(space) : std::string(space) + normal;
}

}  // namespace spry
