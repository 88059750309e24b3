// CUDA errors as Status. Every call of the runtime goes through here, so that a failure names the
// call. Most of these errors are sticky: after one, the card is lost to this process.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace spry::cuda {

// Without an error nothing is allocated: steps go through here.
inline Status CudaStatus(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return {};
  return Internal("cuda: " + std::string(call) + " failed: " + cudaGetErrorString(error) + " (" +
                  cudaGetErrorName(error) + ")");
}

}  // namespace spry::cuda

// SPRY_RETURN_IF_CUDA_ERROR(cudaStreamCreate(&stream));
#define SPRY_RETURN_IF_CUDA_ERROR(call) SPRY_RETURN_IF_ERROR(::spry::cuda::CudaStatus(call, #call))
