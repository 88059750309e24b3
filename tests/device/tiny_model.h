// A decoder of two layers with random weights, as a Program and in double, and a host that runs
// requests through it by the step protocol as the engine would.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/device/op_harness.h"

namespace spry::testing {

class TinyModel {
 public:
  static constexpr int kLayers = 2, kHidden = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
  static constexpr int kFeedForward = 48, kVocab = 61, kMaxLength = 128;

  explicit TinyModel(uint64_t seed);

  Program Trace(DType activation) const;
  // The logits after the last of `ids`.
  std::vector<double> Logits(std::span<const int32_t> ids) const;

 private:
  struct Layer {
    TestWeight attention_norm, q, k, v, o, feed_forward_norm, gate, up, down;
  };
  std::vector<double> Attend(const Layer& layer,
                             const std::vector<std::vector<double>>& normed) const;

  std::vector<double> frequencies_;
  TestWeight embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
};

struct TinyRequest {
  std::vector<int32_t> prompt;
  RowParams params;
};

struct TinyResult {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kNone;
  bool operator==(const TinyResult&) const = default;
};

struct TinySchedule {
  int ring_size = 2;
  int depth = 1;     // steps in flight, < ring_size
  int max_rows = 4;  // requests at once; the others wait
  int chunk = 1000;  // most prompt tokens of a row in a step
  int block_size = 16;
};

// Runs all requests to their ends. Checks on the way that rows which finished on the device are
// silent in the steps launched before the host knew.
std::vector<TinyResult> RunTinyRequests(const TinyModel& model, const Target& target,
                                        std::span<const TinyRequest> requests,
                                        const TinySchedule& schedule);

StepLimits TinyLimits(const TinySchedule& schedule);
// Gives row the blocks [row * n, (row + 1) * n) of the pool.
void WriteTinyBlocks(StepWriter& step, int row, const StepLimits& limits);

}  // namespace spry::testing
