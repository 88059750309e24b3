// Records a model's forward pass. Model code calls ops (src/ops) on a Tracer as if it computed; the
// result is a Program. The first error sticks (an op names itself, the dim and both sizes), later
// calls do nothing, and Finish returns it: model code needs no error handling.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "program/program.h"

namespace spry {

struct TraceOptions {
  DType compute = DType::kF32;     // f32: every weight as f32; bf16, f16: quantised weights stay
  DType activation = DType::kF32;  // of activation buffers, as the device wants it
  DType kv = DType::kF32;          // of the KV cache
  int64_t max_length = 0;          // longest sequence, tokens (sizes position tables)
};

class Tracer {
 public:
  Tracer(std::string name, const TraceOptions& options);

  const TraceOptions& options() const { return options_; }

  Tensor NewBuffer(std::string_view name, RowDim rows, int64_t width, DType dtype);
  // Several parts are stacked along their first dim.
  WeightId AddWeight(std::span<const WeightHandle> parts);
  LayerIdx AddKvLayer(const KvLayer& layer);
  void Emit(const OpRecord& op);

  const WeightRecord& weight(WeightId id) const { return program_.weight(id); }

  void Fail(Status error);
  bool ok() const { return status_.ok(); }

  // `logits` is what the sample op read.
  void SetLogits(const Tensor& logits) { program_.logits = logits; }
  Result<Program> Finish(int64_t vocab_size);

 private:
  TraceOptions options_;
  Program program_;
  Status status_;
};

// Binds named dims of one op: the first use sets a dim, later uses must agree.
class DimBinder {
 public:
  DimBinder(Tracer& tracer, std::string_view op) : tracer_(tracer), op_(op) {}

  // False, and the tracer failed, when `name` is bound to another size.
  bool Bind(std::string_view name, int64_t size, std::string_view what);

 private:
  struct Bound {
    std::string name;
    int64_t size;
    std::string what;
  };
  Tracer& tracer_;
  std::string op_;
  std::vector<Bound> bound_;
};

}  // namespace spry
