// Captured steps. A step is cut into pieces (program/partition.h); for each bucket the pieces that
// do not split are captured, one graph a piece, so a whole step in one graph is the case of one
// piece. Decode buckets are captured at start, the others when they are first met.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/cuda/buckets.h"
#include "program/partition.h"

namespace spry::cuda {

// The graph of each piece, by its index. Null: a splitting piece, or one that launches nothing.
using StepGraphs = std::span<const cudaGraphExec_t>;

// What the graphs of one program may come to take of the card.
int64_t MostGraphBytes(const std::vector<Piece>& pieces);

class GraphCache {
 public:
  // Launches the ops of a piece at the given shape on `stream`; called while the stream captures.
  using RecordFn = std::function<Status(const Piece& piece, const LaunchShape& shape)>;

  GraphCache(cudaStream_t stream, std::vector<Piece> pieces, RecordFn record);
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  const std::vector<Piece>& pieces() const { return pieces_; }

  // The graphs of this bucket, captured now if it is new. Empty when there are kMaxBuckets others
  // or the card has no room: the step is then launched op by op.
  static constexpr int kMaxBuckets = 384;
  Result<StepGraphs> Get(const LaunchShape& shape);

  int buckets() const { return static_cast<int>(entries_.size()); }
  int graphs_per_step() const { return graphs_per_step_; }  // of the bucket captured last
  int kernels_per_step() const { return kernels_per_step_; }
  int64_t capture_nanos() const { return capture_nanos_; }  // over all buckets

 private:
  struct Entry {
    LaunchShape shape;
    std::vector<cudaGraphExec_t> graphs;
  };
  Status CaptureStep(Entry& entry);
  // Leaves null where the piece launches nothing.
  Status Capture(const Piece& piece, const LaunchShape& shape, cudaGraphExec_t& executable);

  cudaStream_t stream_;
  std::vector<Piece> pieces_;
  RecordFn record_;
  std::vector<Entry> entries_;
  size_t last_ = 0;  // what Get found last
  bool full_ = false;
  int graphs_per_step_ = 0;
  int kernels_per_step_ = 0;
  int64_t capture_nanos_ = 0;
};

}  // namespace spry::cuda
