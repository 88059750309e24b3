// Measures what launches cost the host (device/launch_costs.h).
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "base/status.h"

namespace spry::cuda {

using LaunchWork = std::function<Status()>;  // launches on the stream that is measured

// Records what `launch` puts on `stream`. The caller destroys the graph.
Status CaptureLaunches(cudaStream_t stream, const LaunchWork& launch, cudaGraph_t* graph);

Result<int> CountKernels(cudaStream_t stream, const LaunchWork& launch);

// The median over bursts of one untimed and then `timed` calls; each burst begins on an idle
// stream, and `timed` is to be small enough that the queue never fills.
Result<double> MedianLaunchNanos(cudaStream_t stream, int timed, const LaunchWork& launch);

// A bare launch.
Result<double> BareKernelNanos(cudaStream_t stream);
// Bare launches of `graphs` graphs with `kernels` empty kernels in all, spread evenly.
Result<double> BareGraphsNanos(cudaStream_t stream, int graphs, int kernels);

}  // namespace spry::cuda
