#include "device/cuda/graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/clock.h"
#include "device/cuda/draw.h"
#include "device/cuda/error.h"

namespace spry::cuda {
namespace {

constexpr int32_t kExactUpTo = 32;
constexpr int32_t kEightsUpTo = 256;
constexpr size_t kExpectedGraphs = 256;

int32_t PowerOfTwo(int32_t count) {
  return count == 0 ? 0 : static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(count)));
}

int32_t DecodeBucket(int32_t count) {
  if (count <= kExactUpTo) return count;
  if (count <= kEightsUpTo) return (count + 7) / 8 * 8;
  return PowerOfTwo(count);
}

}  // namespace

LaunchShape BucketOf(const StepHeader& header, const StepLimits& limits, const RowKinds& kinds) {
  const bool all_sampled = header.num_tokens == header.num_samples;
  const auto bucket = all_sampled ? DecodeBucket : PowerOfTwo;
  LaunchShape shape{.decode = header.num_tokens == header.num_rows,
                    .in_order = kinds.in_order,
                    .draws = kinds.plain && header.num_samples <= kMaxDrawnRows};
  shape.tokens = std::min(bucket(header.num_tokens), limits.max_tokens);
  shape.samples = std::min(bucket(header.num_samples), limits.max_samples);
  shape.rows = std::min(shape.tokens, limits.max_rows);  // a row has at least one token
  return shape;
}

GraphCache::GraphCache(cudaStream_t stream, RecordFn record)
    : stream_(stream), record_(std::move(record)) {
  entries_.reserve(kExpectedGraphs);
}

GraphCache::~GraphCache() {
  for (const Entry& entry : entries_) (void)cudaGraphExecDestroy(entry.graph);
}

Result<cudaGraphExec_t> GraphCache::Get(const LaunchShape& shape) {
  // A few hundred entries at most, and a serving process uses a handful: a scan beats a hash.
  for (const Entry& entry : entries_) {
    if (entry.shape == shape) return entry.graph;
  }
  const SteadyClock clock;
  const int64_t begin = clock.NowNanos();
  cudaGraph_t graph = nullptr;
  SPRY_RETURN_IF_ERROR(Capture(shape, &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  SPRY_RETURN_IF_CUDA_ERROR(cudaGraphGetNodes(graph, nullptr, &nodes_));
  SPRY_RETURN_IF_CUDA_ERROR(cudaGraphDestroy(graph));
  SPRY_RETURN_IF_ERROR(CudaStatus(error, "cudaGraphInstantiate"));
  entries_.push_back({shape, executable});
  SPRY_RETURN_IF_CUDA_ERROR(cudaGraphUpload(executable, stream_));
  capture_nanos_ += clock.NowNanos() - begin;
  return executable;
}

Status GraphCache::Capture(const LaunchShape& shape, cudaGraph_t* graph) {
  // Relaxed: the first launch of a kernel may load its code, which other modes forbid.
  SPRY_RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  const Status recorded = record_(shape);
  const cudaError_t error = cudaStreamEndCapture(stream_, graph);
  SPRY_RETURN_IF_ERROR(recorded);
  return CudaStatus(error, "cudaStreamEndCapture");
}

}  // namespace spry::cuda
