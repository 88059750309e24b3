// Checks the scores of a vocabulary.
#pragma once

#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

// One for each piece, all of them finite numbers.
Status CheckScores(const VocabSource& source);

}  // namespace spry
