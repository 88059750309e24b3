#include "device/cuda/weight_tiles.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    TileKernel(const uint16_t* source, int64_t first_row, int64_t columns, uint16_t* target) {
  const int64_t row = blockIdx.x;
  for (int64_t k = threadIdx.x; k < columns; k += kThreads) {
    target[TiledOffset(first_row + row, k, columns)] = source[row * columns + k];
  }
}

}  // namespace

void TileRows(const std::byte* source, int64_t first_row, int64_t rows, int64_t columns,
              std::byte* target, cudaStream_t stream) {
  TileKernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      reinterpret_cast<const uint16_t*>(source), first_row, columns,
      reinterpret_cast<uint16_t*>(target));
}

}  // namespace spry::cuda
