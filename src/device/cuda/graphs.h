// Captured steps. One graph holds every launch of a step whose counts fit its bucket; a bucket is
// captured when it is first met, so the first step of each size is slower.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "device/cuda/kernel.h"
#include "device/cuda/row_kinds.h"
#include "program/step.h"

namespace spry::cuda {

// The bucket that serves a step. Decode steps (every token sampled) are exact up to 32, then whole
// eights, then powers of two; mixed steps are powers of two in both counts. That bounds the number
// of graphs and the share of idle blocks.
LaunchShape BucketOf(const StepHeader& header, const StepLimits& limits, const RowKinds& kinds);

class GraphCache {
 public:
  // `record` launches a whole step of the given shape on `stream`; it is called while the stream
  // captures.
  using RecordFn = std::function<Status(const LaunchShape& shape)>;

  GraphCache(cudaStream_t stream, RecordFn record);
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // The graph of this bucket, captured now if it is new.
  Result<cudaGraphExec_t> Get(const LaunchShape& shape);

  int size() const { return static_cast<int>(entries_.size()); }
  int64_t capture_nanos() const { return capture_nanos_; }  // over all graphs
  size_t nodes_per_graph() const { return nodes_; }         // of the graph captured last

 private:
  struct Entry {
    LaunchShape shape;
    cudaGraphExec_t graph;
  };
  Status Capture(const LaunchShape& shape, cudaGraph_t* graph);

  cudaStream_t stream_;
  RecordFn record_;
  std::vector<Entry> entries_;
  int64_t capture_nanos_ = 0;
  size_t nodes_ = 0;
};

}  // namespace spry::cuda
