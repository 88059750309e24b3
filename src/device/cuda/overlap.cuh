// Programmatic dependent launch: a kernel may start while the one before it still runs, do what
// does not depend on it (fetch weights), and then wait for it. Every kernel launched this way must
// call AwaitPrevious before it touches anything that a kernel writes, even if it needs nothing: the
// wait is what makes "complete" mean "all before are complete". Cards before Hopper start them in
// turn.
//
// Before its wait a kernel may read what no kernel of the step writes (weights, the KV of earlier
// steps), and what stage or the step before wrote: embed, which follows stage in every program,
// lets the next kernel start only once stage has ended.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "device/cuda/kernel.h"

namespace spry::cuda {

__device__ inline void AwaitPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start once every block has come here; it still waits for this one's end.
__device__ inline void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

struct Grid {
  dim3 blocks;
  int threads = 0;
  size_t shared_bytes = 0;
  int cluster = 1;  // blocks along z that share their memory
};

template <typename... Params, typename... Args>
void LaunchOverlapped(const LaunchContext& context, const Grid& grid, void (*kernel)(Params...),
                      Args&&... args) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (context.overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {1, 1, static_cast<unsigned>(grid.cluster)};
  }
  const cudaLaunchConfig_t config = {.gridDim = grid.blocks,
                                     .blockDim = dim3(grid.threads),
                                     .dynamicSmemBytes = grid.shared_bytes,
                                     .stream = context.stream,
                                     .attrs = attributes,
                                     .numAttrs = count};
  // An error stays for the executor, which asks after every op.
  (void)cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

}  // namespace spry::cuda
