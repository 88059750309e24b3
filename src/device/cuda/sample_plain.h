// The sampler of steps whose rows are all greedy or have a temperature and nothing else: the whole
// card works on a row's vocabulary, where the general sampler (sample.cu) has one block.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/kernel.h"
#include "program/step.h"

namespace spry::cuda {

int64_t PlainSamplingBytes(int32_t max_samples);

// Which permanent rows are plain, kept by the host from the joins it sends.
class PlainRows {
 public:
  explicit PlainRows(int32_t max_rows) : plain_(max_rows, 1) {}

  // Takes a slot's joins; true when every row of its step is plain.
  bool Update(const StepSlot& slot);

 private:
  std::vector<uint8_t> plain_;  // by permanent row
};

void LaunchPlainSample(const Matrix& logits, std::byte* scratch, const StepState& state,
                       const LaunchContext& context);

}  // namespace spry::cuda
