// From what a request asks to what its row on the device is told.
#pragma once

#include <cstdint>
#include <span>

#include "api/row.h"
#include "api/sampling_params.h"
#include "base/status.h"

namespace spry {

// `eos_tokens` end generation unless ignore_eos; `drawn_seed` serves a request without a seed.
// InvalidArgument when end and stop ids together are more than kMaxStopTokenIds.
Result<RowParams> MakeRowParams(const SamplingParams& sampling, std::span<const TokenId> eos_tokens,
                                uint64_t drawn_seed);

}  // namespace spry
