#include "tests/cuda/generation.h"

#include <fmt/format.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "device/cpu/cpu_device.h"
#include "tests/cuda/cuda_target.h"

namespace spry::testing {
namespace {

template <typename T>
T OrExit(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::printf("FAIL  %s\n", result.status().message().c_str());
  std::exit(1);
}

}  // namespace

std::unique_ptr<Engine> MakeEngine(std::unique_ptr<Device> device, const Checkpoint& checkpoint,
                                   const EngineOptions& options) {
  return OrExit(Engine::Create(std::move(device), checkpoint, options));
}

std::unique_ptr<Device> CpuReference(int threads) {
  return OrExit(MakeCpuDevice({.threads = threads, .isa = CpuIsa::kReference}));
}

std::unique_ptr<Device> Cuda(const GraphOptions& graphs) { return OrExit(LoadCuda(graphs)); }

Generation Generate(Engine& engine, const std::vector<GenerationRequest>& requests,
                    int submit_every) {
  Generation generation;
  generation.tokens.resize(requests.size());
  generation.logprobs.resize(requests.size());
  std::unordered_map<RequestId, size_t> indices;
  const SteadyClock clock;
  const int64_t begin = clock.NowNanos();
  size_t submitted = 0;
  while (submitted < requests.size() || !engine.idle()) {
    while (submitted < requests.size() &&
           static_cast<int>(submitted) * submit_every <= generation.steps) {
      indices[OrExit(engine.Submit(requests[submitted]))] = submitted;
      ++submitted;
    }
    for (const TokenEvent& event : OrExit(engine.Step())) {
      if (!event.has_token) continue;
      const size_t index = indices.at(event.request);
      generation.tokens[index].push_back(event.token);
      if (requests[index].sampling.logprobs) {
        generation.logprobs[index].push_back(event.logprobs->chosen.logprob);
      }
    }
    ++generation.steps;
  }
  generation.seconds = static_cast<double>(clock.NowNanos() - begin) * 1e-9;
  generation.preemptions = engine.stats().preemptions;
  return generation;
}

std::string Difference(const Generation& expected, const Generation& found) {
  for (size_t r = 0; r < expected.tokens.size(); ++r) {
    const auto& a = expected.tokens[r];
    const auto& b = found.tokens[r];
    if (a.size() != b.size()) {
      return fmt::format("request {}: {} tokens but {}", r, b.size(), a.size());
    }
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i]) continue;
      return fmt::format("request {}, token {}: {} but {}", r, i, b[i].value(), a[i].value());
    }
    for (size_t i = 0; i < expected.logprobs[r].size(); ++i) {
      const float x = expected.logprobs[r][i];
      const float y = found.logprobs[r][i];
      if (std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y)) continue;
      return fmt::format("request {}, logprob {}: {} but {}", r, i, y, x);
    }
  }
  return "";
}

}  // namespace spry::testing
