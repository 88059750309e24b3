// Stop ids before min_outputs (ops/sampling.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "api/row.h"

namespace spry {

// Masks the row's stop ids in place while it lives: the logits stay what the model said.
class StopMask {
 public:
  StopMask(const RowParams& params, float* logits) : params_(params), logits_(logits) {
    for (int32_t i = 0; i < params.num_stop_ids; ++i) {
      float& logit = logits[params.stop_ids[i].value()];
      kept_[i] = logit;
      logit = -INFINITY;
    }
  }
  ~StopMask() {  // backwards, as an id may be there twice
    for (int32_t i = params_.num_stop_ids; i-- > 0;) {
      logits_[params_.stop_ids[i].value()] = kept_[i];
    }
  }
  StopMask(const StopMask&) = delete;
  StopMask& operator=(const StopMask&) = delete;

 private:
  const RowParams& params_;
  float* logits_;
  float kept_[kMaxStopTokenIds];
};

}  // namespace spry
