#include "device/cuda/weights.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/cuda/error.h"
#include "device/cuda/memory.h"
#include "device/cuda/weight_tiles.h"
#include "tensor/dequantize.h"
#include "tensor/float16.h"

namespace spry::cuda {
namespace {

constexpr int64_t kChunkBytes = 16 << 20;  // converted on the host, then copied

void ConvertRow(const std::vector<float>& row, DType dtype, std::byte* out) {
  switch (dtype) {
    case DType::kF32: std::memcpy(out, row.data(), row.size() * sizeof(float)); return;
    case DType::kF16:
      for (size_t i = 0; i < row.size(); ++i) {
        const uint16_t bits = FloatToF16(row[i]);
        std::memcpy(out + 2 * i, &bits, sizeof(bits));
      }
      return;
    case DType::kBF16:
      for (size_t i = 0; i < row.size(); ++i) {
        const uint16_t bits = FloatToBf16(row[i]);
        std::memcpy(out + 2 * i, &bits, sizeof(bits));
      }
      return;
    default: CHECK(false && "not a compute dtype");
  }
}

// `tensor` as rows of `columns` elements, converted to `dtype` at `device`.
Status UploadTensor(const HostTensor& tensor, int64_t columns, DType dtype, std::byte* device) {
  const int64_t source_bytes = RowBytes(tensor.dtype, columns);
  const int64_t target_bytes = RowBytes(dtype, columns);
  const int64_t rows = static_cast<int64_t>(tensor.data.size()) / source_bytes;
  if (tensor.dtype == dtype) {
    return CudaStatus(
        cudaMemcpy(device, tensor.data.data(), tensor.data.size(), cudaMemcpyHostToDevice),
        "cudaMemcpy of a weight");
  }
  const int64_t chunk_rows = std::max<int64_t>(1, kChunkBytes / target_bytes);
  std::vector<std::byte> chunk(std::min(rows, chunk_rows) * target_bytes);
  std::vector<float> floats(columns);
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - begin);
    for (int64_t r = 0; r < count; ++r) {
      DequantizeRow(tensor.dtype, tensor.data.data() + (begin + r) * source_bytes, columns,
                    floats.data());
      ConvertRow(floats, dtype, chunk.data() + r * target_bytes);
    }
    SPRY_RETURN_IF_ERROR(CudaStatus(cudaMemcpy(device + begin * target_bytes, chunk.data(),
                                               count * target_bytes, cudaMemcpyHostToDevice),
                                    "cudaMemcpy of a weight"));
  }
  return {};
}

// Room for the largest tensor that has to be put into tiles.
int64_t StagingBytes(const Program& program, const MemoryPlan& plan) {
  int64_t bytes = 0;
  for (size_t id = 0; id < program.weights.size(); ++id) {
    if (!plan.weights[id].tiled || plan.weights[id].shared) continue;
    for (const WeightHandle& part : program.weights[id].parts) {
      bytes = std::max(bytes, part.shape[0] * RowBytes(plan.weights[id].dtype, part.shape[1]));
    }
  }
  return bytes;
}

}  // namespace

Status UploadWeights(const Program& program, const MemoryPlan& plan, std::byte* region,
                     const CompileOptions& options) {
  DeviceMemory staging;
  if (const int64_t bytes = StagingBytes(program, plan); bytes > 0) {
    SPRY_ASSIGN_OR_RETURN(staging, DeviceMemory::Allocate(bytes, "weights on their way"));
  }
  int64_t done_bytes = 0;
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const WeightPlacement& placement = plan.weights[id];
    if (placement.shared) continue;
    const WeightRecord& weight = program.weights[id];
    const int64_t row_bytes = RowBytes(placement.dtype, weight.columns);
    std::byte* at = region + placement.offset;
    int64_t first_row = 0;
    for (const WeightHandle& part : weight.parts) {
      SPRY_ASSIGN_OR_RETURN(const HostTensor tensor, part.read());
      // Vectors are stacked element by element, matrices row by row.
      const int64_t rows = part.shape[0];
      const int64_t expected = weight.columns == 1 ? RowBytes(tensor.dtype, rows)
                                                   : rows * RowBytes(tensor.dtype, weight.columns);
      if (static_cast<int64_t>(tensor.data.size()) != expected) {
        return InvalidArgument(fmt::format("weight {} holds {} bytes; {} of shape {} take {}",
                                           part.name, tensor.data.size(), Traits(tensor.dtype).name,
                                           part.shape.ToString(), expected));
      }
      const int64_t columns = weight.columns == 1 ? rows : weight.columns;
      std::byte* target = placement.tiled ? staging.data() : at + first_row * row_bytes;
      SPRY_RETURN_IF_ERROR(UploadTensor(tensor, columns, placement.dtype, target));
      if (placement.tiled) {
        // The default stream, as the copies: the next copy waits for the tiling.
        TileRows(staging.data(), first_row, rows, weight.columns, at, cudaStream_t{});
        SPRY_RETURN_IF_CUDA_ERROR(cudaGetLastError());
      }
      first_row += rows;
      done_bytes += rows * row_bytes;
      if (options.progress) options.progress(done_bytes, plan.weight_bytes);
    }
  }
  // `staging` goes with this function: tiling must be over.
  return CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize after loading");
}

}  // namespace spry::cuda
