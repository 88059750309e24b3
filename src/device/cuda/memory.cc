#include "device/cuda/memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>

#include "device/cuda/error.h"

namespace spry::cuda {

Result<DeviceMemory> DeviceMemory::Allocate(int64_t bytes, const std::string& what) {
  DeviceMemory memory;
  if (bytes == 0) return memory;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // out of memory is not sticky
    size_t free_bytes = 0;
    size_t all_bytes = 0;
    SPRY_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &all_bytes));
    return ResourceExhausted(
        fmt::format("cuda: {} need {} bytes but the card has {} free of {}; lower "
                    "--gpu-memory-utilization, --max-model-len or --max-num-batched-tokens",
                    what, bytes, free_bytes, all_bytes));
  }
  SPRY_RETURN_IF_ERROR(CudaStatus(error, "cudaMalloc for " + what));
  memory.data_ = static_cast<std::byte*>(data);
  return memory;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) (void)cudaFree(data_);
}

Result<MappedMemory> MappedMemory::Allocate(int64_t bytes) {
  MappedMemory memory;
  void* host = nullptr;
  void* device = nullptr;
  SPRY_RETURN_IF_CUDA_ERROR(cudaHostAlloc(&host, static_cast<size_t>(bytes), cudaHostAllocMapped));
  memory.host_ = static_cast<std::byte*>(host);
  SPRY_RETURN_IF_CUDA_ERROR(cudaHostGetDevicePointer(&device, host, 0));
  memory.device_ = static_cast<std::byte*>(device);
  std::memset(host, 0, static_cast<size_t>(bytes));
  return memory;
}

MappedMemory::~MappedMemory() {
  if (host_ != nullptr) (void)cudaFreeHost(host_);
}

}  // namespace spry::cuda
