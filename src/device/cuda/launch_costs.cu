#include "device/cuda/launch_costs.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "device/cuda/error.h"

namespace spry::cuda {
namespace {

constexpr int kBursts = 101;
constexpr int kKernelsPerBurst = 16;

__global__ void EmptyKernel() {}

// Owned graphs that can be launched.
class Graphs {
 public:
  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs() {
    for (const cudaGraphExec_t graph : graphs_) (void)cudaGraphExecDestroy(graph);
  }

  Status Add(cudaStream_t stream, int kernels) {
    cudaGraph_t graph = nullptr;
    SPRY_RETURN_IF_ERROR(CaptureLaunches(
        stream,
        [&]() -> Status {
          for (int i = 0; i < kernels; ++i) EmptyKernel<<<1, 32, 0, stream>>>();
          return CudaStatus(cudaGetLastError(), "launch of an empty kernel");
        },
        &graph));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    SPRY_RETURN_IF_CUDA_ERROR(cudaGraphDestroy(graph));
    SPRY_RETURN_IF_ERROR(CudaStatus(error, "cudaGraphInstantiate"));
    graphs_.push_back(executable);
    return CudaStatus(cudaGraphUpload(executable, stream), "cudaGraphUpload");
  }

  Status Launch(cudaStream_t stream) const {
    for (const cudaGraphExec_t graph : graphs_) {
      SPRY_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(graph, stream));
    }
    return {};
  }

 private:
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace

Status CaptureLaunches(cudaStream_t stream, const LaunchWork& launch, cudaGraph_t* graph) {
  // Relaxed: the first launch of a kernel may load its code, which other modes forbid.
  SPRY_RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  const Status launched = launch();
  const cudaError_t error = cudaStreamEndCapture(stream, graph);
  SPRY_RETURN_IF_ERROR(launched);
  return CudaStatus(error, "cudaStreamEndCapture");
}

Result<int> CountKernels(cudaStream_t stream, const LaunchWork& launch) {
  cudaGraph_t graph = nullptr;
  SPRY_RETURN_IF_ERROR(CaptureLaunches(stream, launch, &graph));
  size_t count = 0;
  const cudaError_t error = cudaGraphGetNodes(graph, nullptr, &count);
  SPRY_RETURN_IF_CUDA_ERROR(cudaGraphDestroy(graph));
  SPRY_RETURN_IF_ERROR(CudaStatus(error, "cudaGraphGetNodes"));
  return static_cast<int>(count);
}

Result<double> MedianLaunchNanos(cudaStream_t stream, int timed, const LaunchWork& launch) {
  const SteadyClock clock;
  std::vector<double> nanos;
  for (int burst = 0; burst < kBursts; ++burst) {
    SPRY_RETURN_IF_ERROR(launch());
    const int64_t begin = clock.NowNanos();
    for (int i = 0; i < timed; ++i) SPRY_RETURN_IF_ERROR(launch());
    nanos.push_back(static_cast<double>(clock.NowNanos() - begin) / timed);
    SPRY_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  }
  std::nth_element(nanos.begin(), nanos.begin() + kBursts / 2, nanos.end());
  return nanos[kBursts / 2];
}

Result<double> BareKernelNanos(cudaStream_t stream) {
  return MedianLaunchNanos(stream, kKernelsPerBurst, [stream]() -> Status {
    EmptyKernel<<<1, 32, 0, stream>>>();
    return CudaStatus(cudaGetLastError(), "launch of an empty kernel");
  });
}

Result<double> BareGraphsNanos(cudaStream_t stream, int graphs, int kernels) {
  if (graphs == 0) return 0.0;
  Graphs bare;
  for (int i = 0; i < graphs; ++i) {
    SPRY_RETURN_IF_ERROR(bare.Add(stream, kernels / graphs + (i < kernels % graphs ? 1 : 0)));
  }
  // As in a step: one launch while the one before is on its way.
  constexpr int kTimed = 1;
  return MedianLaunchNanos(stream, kTimed, [&] { return bare.Launch(stream); });
}

}  // namespace spry::cuda
