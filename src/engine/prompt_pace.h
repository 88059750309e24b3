// How many prompt tokens a step may take while requests decode, so that these keep their pace: as
// many as the machine was seen to compute in the time that a stream may be held up. The number is
// searched for, not derived from a cost per token: most of a step's time may be the same for any
// number of them.
//
// The engine tells it of every step. A step's time runs from its launch, or from the end of the
// step before where that comes later. Nothing here changes a token, only when it comes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"

namespace spry {

class PromptPace {
 public:
  // A step has at most `max_step_tokens`, and `max_steps_in_flight` of them are in flight.
  PromptPace(std::unique_ptr<Clock> clock, int max_step_tokens, int max_steps_in_flight);

  void Launched(int num_prompt_tokens);
  // The oldest step in flight has ended.
  void Done();

  // In 1..max_step_tokens.
  int prompt_tokens() const { return prompt_tokens_; }

 private:
  struct Step {
    int num_prompt_tokens = 0;
    int64_t launched = 0;  // nanoseconds; 0: its time does not matter
  };

  bool IsMeasured(int num_prompt_tokens);
  void Learn(int num_prompt_tokens, double nanos);

  std::unique_ptr<Clock> clock_;
  int max_step_tokens_;
  std::vector<Step> steps_;  // a ring of those in flight
  uint64_t num_launched_ = 0;
  uint64_t num_done_ = 0;
  int num_measured_ = 0;  // of those in flight
  int num_decodes_ = 0;   // steps without prompt tokens, one in several of which is measured
  int64_t last_end_ = 0;  // of a step, when one to be measured was in flight

  double decode_nanos_ = 0;  // of steps without prompt tokens, a mean of late; 0: none seen
  int prompt_tokens_;
};

}  // namespace spry
