#include "engine/prompt_pace.h"

#include <algorithm>
#include <utility>

namespace spry {
namespace {

// A step with prompt tokens may take so long, or so many times what a step without them takes. The
// longest pause that people take for fluent is about twice as long.
constexpr double kStepNanos = 60e6;
constexpr double kDecodeSteps = 1.5;

// Kernels take that many rows at once, and with fewer the time is that of reading the weights.
constexpr int kFewestPromptTokens = 16;

// Until a step has been measured: on slow machines little, and soon more on fast ones.
constexpr int kFirstPromptTokens = 128;

// The clock costs a tenth of the host's share of a small step.
constexpr int kDecodesPerMeasurement = 16;

// How much the latest measurement of a decode step counts.
constexpr double kWeight = 0.25;

// Steps that had all they may and took less than that time may have so much more.
constexpr double kGrowth = 1.25;

}  // namespace

PromptPace::PromptPace(std::unique_ptr<Clock> clock, int max_step_tokens, int max_steps_in_flight)
    : clock_(std::move(clock)),
      max_step_tokens_(max_step_tokens),
      steps_(max_steps_in_flight),
      prompt_tokens_(std::min(kFirstPromptTokens, max_step_tokens)) {}

bool PromptPace::IsMeasured(int num_prompt_tokens) {
  if (num_prompt_tokens > 0) return num_prompt_tokens >= kFewestPromptTokens;
  num_decodes_ = (num_decodes_ + 1) % kDecodesPerMeasurement;
  return num_decodes_ == 0;
}

void PromptPace::Launched(int num_prompt_tokens) {
  const bool measured = IsMeasured(num_prompt_tokens);
  steps_[num_launched_++ % steps_.size()] = {.num_prompt_tokens = num_prompt_tokens,
                                             .launched = measured ? clock_->NowNanos() : 0};
  num_measured_ += measured;
}

void PromptPace::Done() {
  const Step& step = steps_[num_done_++ % steps_.size()];
  if (num_measured_ == 0) return;
  const int64_t now = clock_->NowNanos();
  if (step.launched != 0) {
    --num_measured_;
    Learn(step.num_prompt_tokens, static_cast<double>(now - std::max(step.launched, last_end_)));
  }
  last_end_ = now;
}

void PromptPace::Learn(int num_prompt_tokens, double nanos) {
  if (num_prompt_tokens == 0) {
    decode_nanos_ = decode_nanos_ == 0 ? nanos : decode_nanos_ + kWeight * (nanos - decode_nanos_);
    return;
  }
  const double allowed = std::max(kStepNanos, kDecodeSteps * decode_nanos_);
  double tokens = prompt_tokens_;
  if (nanos > allowed) {
    tokens = num_prompt_tokens * allowed / nanos;
  } else if (num_prompt_tokens >= prompt_tokens_) {
    tokens = std::max(num_prompt_tokens * kGrowth, tokens + kFewestPromptTokens);
  }
  const int whole_tiles = static_cast<int>(tokens) / kFewestPromptTokens * kFewestPromptTokens;
  prompt_tokens_ = std::min(std::max(whole_tiles, kFewestPromptTokens), max_step_tokens_);
}

}  // namespace spry
