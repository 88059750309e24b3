// The same requests through the whole engine on either device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "device/graph_options.h"
#include "engine/engine.h"

namespace spry::testing {

struct Generation {
  std::vector<std::vector<TokenId>> tokens;  // by request
  std::vector<std::vector<float>> logprobs;  // of the tokens, where a request asked
  int steps = 0;
  double seconds = 0.0;
  uint64_t preemptions = 0;
};

// An engine, or the end of the program with the reason why there is none.
std::unique_ptr<Engine> MakeEngine(std::unique_ptr<Device> device, const Checkpoint& checkpoint,
                                   const EngineOptions& options);
std::unique_ptr<Device> CpuReference(int threads);
std::unique_ptr<Device> Cuda(const GraphOptions& graphs);

// Submits all at once, or one every `submit_every` steps, and runs until the engine is idle.
Generation Generate(Engine& engine, const std::vector<GenerationRequest>& requests,
                    int submit_every);

// Empty when equal, else the first difference.
std::string Difference(const Generation& expected, const Generation& found);

}  // namespace spry::testing
