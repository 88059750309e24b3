// Sampling of one row by one worker: what does not split over the vocabulary.
#pragma once

#include <cstdint>

#include "device/cpu/simd/sample_kernels.h"
#include "program/step.h"

namespace spry {

// Room for a few lists of a vocabulary.
struct SampleScratch {
  int32_t* ids = nullptr;
  float* values = nullptr;
  uint32_t* keys = nullptr;
  uint32_t* masses = nullptr;

  static int64_t Bytes(int64_t vocab_size);
  static SampleScratch Map(int64_t vocab_size, std::byte* base);
};

class RowSampler {
 public:
  RowSampler(const SampleKernels& kernels, const SampleScratch& scratch, int32_t vocab_size)
      : kernels_(kernels), scratch_(scratch), vocab_size_(vocab_size) {}

  // The token of a row that may have filters and masked stop ids; `scan` is of its raw logits.
  // Logits are changed for a while and left as they were.
  int32_t Pick(const RowState& row, float* logits, const LogitScan& scan) const;

  // Fills in sampled.logprobs for sampled.token. `max` is of the raw logits.
  void ReportLogprobs(const float* logits, float max, int32_t wanted, Sampled& sampled) const;

 private:
  struct Kept {
    float lowest = 0.0f;         // logits below may not be drawn
    uint64_t ties = UINT64_MAX;  // of those equal to it, only the first so many
  };
  int32_t Draw(const RowState& row, const float* logits, const LogitScan& scan) const;
  Kept Filter(const RowParams& params, const float* logits, const DrawSpec& spec) const;
  float KthLargest(const float* logits, int64_t k) const;
  Kept ApplyTopP(float top_p, const float* logits, float lowest, const DrawSpec& spec) const;
  int32_t FindTop(const float* logits, int32_t wanted, TokenLogprob* top) const;

  const SampleKernels& kernels_;
  SampleScratch scratch_;
  int32_t vocab_size_;
};

// How a row is drawn from raw logits; `scan` is theirs.
DrawSpec MakeDrawSpec(const RowState& row, const LogitScan& scan);

}  // namespace spry
