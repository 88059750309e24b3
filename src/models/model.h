// The models that spry knows. A model is one function that reads like a forward pass, in a file of
// its own, and one line in the registry (registry.cc).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "ops/fusion.h"
#include "program/tracer.h"

namespace spry {

using TraceFn = void (*)(Tracer& tracer, const ModelConfig& config, const Weights& weights);

void TraceLlama(Tracer& tracer, const ModelConfig& config, const Weights& weights);
void TraceOpt(Tracer& tracer, const ModelConfig& config, const Weights& weights);

std::vector<std::string> SupportedArchitectures();

// Traces and fuses the model that config.architecture names. Unimplemented for one that spry does
// not know, with the list; otherwise the first error of tracing (a missing or misshapen weight).
Result<Program> TraceModel(const ModelConfig& config, const Weights& weights,
                           const TraceOptions& options, const Fusions& fusions = {});

}  // namespace spry
