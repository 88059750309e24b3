#include "program/tracer.h"

#include <fmt/format.h>

#include <utility>

namespace spry {

Tracer::Tracer(std::string name, const TraceOptions& options) : options_(options) {
  program_.name = std::move(name);
  program_.compute = options.compute;
  Emit({.id = OpId::kStage});
}

Tensor Tracer::NewBuffer(std::string_view name, RowDim rows, int64_t width, DType dtype) {
  const BufferId id(static_cast<int32_t>(program_.buffers.size()));
  program_.buffers.push_back({std::string(name), rows, width, dtype});
  return {.buffer = id, .rows = rows, .dtype = dtype, .width = width, .stride = width};
}

WeightId Tracer::AddWeight(std::span<const WeightHandle> parts) {
  CHECK(!parts.empty());
  WeightRecord record;
  for (const WeightHandle& part : parts) {
    const int rank = part.shape.rank();
    const int64_t columns = rank == 2 ? part.shape[1] : 1;
    if (rank < 1 || rank > 2) {
      Fail(InvalidArgument(fmt::format("weight {} has shape {}; a vector or a matrix was expected",
                                       part.name, part.shape.ToString())));
      break;
    }
    if (!record.parts.empty() && columns != record.columns) {
      Fail(
          InvalidArgument(fmt::format("weights {} and {} have {} and {} columns; stacked weights "
                                      "must agree",
                                      record.name(), part.name, record.columns, columns)));
      break;
    }
    record.columns = columns;
    record.rows += part.shape[0];
    record.parts.push_back(part);
  }
  if (record.parts.empty()) record.parts.push_back(parts.front());
  program_.weights.push_back(std::move(record));
  return WeightId(static_cast<int32_t>(program_.weights.size()) - 1);
}

LayerIdx Tracer::AddKvLayer(const KvLayer& layer) {
  program_.kv_layers.push_back(layer);
  return LayerIdx(static_cast<int32_t>(program_.kv_layers.size()) - 1);
}

void Tracer::Emit(const OpRecord& op) {
  if (ok()) program_.ops.push_back(op);
}

void Tracer::Fail(Status error) {
  if (ok()) status_ = std::move(error);
}

Result<Program> Tracer::Finish(int64_t vocab_size) {
  if (!ok()) return status_;
  program_.vocab_size = vocab_size;
  return std::move(program_);
}

bool DimBinder::Bind(std::string_view name, int64_t size, std::string_view what) {
  for (const Bound& bound : bound_) {
    if (bound.name != name) continue;
    if (bound.size == size) return true;
    tracer_.Fail(InvalidArgument(fmt::format("{}: dim {} is {} in {} but {} in {}", op_, name,
                                             bound.size, bound.what, size, what)));
    return false;
  }
  bound_.push_back({std::string(name), size, std::string(what)});
  return true;
}

}  // namespace spry
