#include "text/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spry {

Status CheckScores(const VocabSource& source) {
  if (source.scores.size() != source.pieces.size()) {
    return InvalidArgument(
        fmt::format("the vocabulary has {} scores; expected one for each of {} tokens",
                    source.scores.size(), source.pieces.size()));
  }
  const auto broken = std::find_if(source.scores.begin(), source.scores.end(),
                                   [](double score) { return !std::isfinite(score); });
  if (broken == source.scores.end()) return {};
  return InvalidArgument(fmt::format("the score of token {} is {}; expected a finite number",
                                     broken - source.scores.begin(), *broken));
}

}  // namespace spry
