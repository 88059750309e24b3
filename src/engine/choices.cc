#include "engine/choices.h"

namespace spry {

GenerationRequest MakeChoice(const GenerationRequest& request, int index) {
  GenerationRequest choice = request;
  SamplingParams& sampling = choice.sampling;
  sampling.n = 1;
  if (sampling.seed) *sampling.seed += static_cast<uint64_t>(index);
  const bool scored = sampling.max_tokens == 0;  // there is nothing else to it
  if (index > 0 && !scored) sampling.prompt_logprobs.reset();
  return choice;
}

Result<std::vector<RequestId>> SubmitChoices(Engine& engine, const GenerationRequest& request) {
  SPRY_RETURN_IF_ERROR(Validate(request.sampling, engine.program().vocab_size));
  std::vector<RequestId> ids;
  for (int i = 0; i < request.sampling.n; ++i) {
    const Result<RequestId> id = engine.Submit(MakeChoice(request, i));
    if (!id.ok()) {
      for (const RequestId other : ids) engine.Cancel(other);
      return id.status();
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace spry
