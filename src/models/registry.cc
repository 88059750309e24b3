#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/model.h"
#include "ops/fusion.h"

namespace spry {
namespace {

struct Entry {
  const char* architecture;
  TraceFn trace;
};

constexpr Entry kModels[] = {
    {"LlamaForCausalLM", TraceLlama},
    {"OPTForCausalLM", TraceOpt},
};

}  // namespace

std::vector<std::string> SupportedArchitectures() {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.architecture);
  return names;
}

Result<Program> TraceModel(const ModelConfig& config, const Weights& weights,
                           const TraceOptions& options, const Fusions& fusions) {
  for (const Entry& entry : kModels) {
    if (config.architecture != entry.architecture) continue;
    Tracer tracer(config.architecture, options);
    entry.trace(tracer, config, weights);
    SPRY_ASSIGN_OR_RETURN(Program program, tracer.Finish(config.vocab_size));
    FuseOps(program, fusions);
    return program;
  }
  return Unimplemented(fmt::format("the model's architecture is {}; supported are {}",
                                   config.architecture, fmt::join(SupportedArchitectures(), ", ")));
}

}  // namespace spry
