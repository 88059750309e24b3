// Several answers to one prompt (SamplingParams::n): what sets one apart, and how they get in.
#pragma once

#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace spry {

// Choice `index` of a request, from 0, as a request of its own. With a seed its seed is that plus
// the index; without one it draws its own when submitted. The prompt's log-probabilities are the
// same for all: the first choice brings them, and the others share the blocks that it computes.
GenerationRequest MakeChoice(const GenerationRequest& request, int index);

// Submits all sampling.n choices, in order; with an error none of them is left in the engine.
Result<std::vector<RequestId>> SubmitChoices(Engine& engine, const GenerationRequest& request);

}  // namespace spry
