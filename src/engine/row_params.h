// From what a request asks to what its row and its rule slot on the device are told.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "api/logit_rules.h"
#include "api/row.h"
#include "api/sampling_params.h"
#include "base/status.h"

namespace spry {

// `eos_tokens` end generation unless ignore_eos; `drawn_seed` serves a request without a seed.
// InvalidArgument when end and stop ids together are more than kMaxStopTokenIds.
Result<RowParams> MakeRowParams(const SamplingParams& sampling, std::span<const TokenId> eos_tokens,
                                uint64_t drawn_seed);

// The rules of valid parameters and a mask (null: none); null when they say nothing.
std::shared_ptr<const LogitRules> MakeLogitRules(const SamplingParams& sampling,
                                                 std::shared_ptr<TokenMask> mask);

}  // namespace spry
