// What `spry inspect` says about a model, for people and for programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "runtime/model_runner.h"
#include "text/tokenizer.h"

namespace spry {

class InspectReport {
 public:
  // `tokenizer` is null for a model without one, `plan` for a model that cannot be run. All must
  // outlive this.
  InspectReport(const Checkpoint& checkpoint, const Tokenizer* tokenizer, const ModelPlan* plan);

  std::string ToText() const;
  std::string ToJson() const;

 private:
  struct Total {
    int64_t tensors = 0;
    int64_t elements = 0;
  };
  std::string ConfigText() const;
  std::string TensorsText() const;
  std::string TokenizerText() const;

  const Checkpoint& checkpoint_;
  const Tokenizer* tokenizer_;
  const ModelPlan* plan_;
  // Of the file; dummy weights have none, so there those that the model asks for.
  std::vector<WeightHandle> tensors_;
  std::map<std::string, Total> totals_;  // by the file's name of the type
};

}  // namespace spry
