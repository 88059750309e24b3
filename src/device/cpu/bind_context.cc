#include <fmt/format.h>

#include <algorithm>

#include "device/cpu/kernel.h"
#include "tensor/dequantize.h"

namespace spry {
namespace {

constexpr int64_t kAlignBytes = 64;
// Weights share slabs, so that small ones do not waste a huge page each.
constexpr int64_t kSlabBytes = int64_t{64} << 20;

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

// Rows and columns of a weight's part as they lie in memory: a vector is one row.
struct Extent {
  int64_t rows = 1;
  int64_t columns = 0;
};
Extent ExtentOf(const Shape& shape) {
  return shape.rank() == 2 ? Extent{shape[0], shape[1]} : Extent{1, shape[0]};
}

}  // namespace

BindContext::BindContext(const Program& program, const StepLimits& limits, WorkerPool& pool)
    : program_(program),
      limits_(limits),
      pool_(pool),
      plan_(PlanBuffers(program, limits)),
      floats_(program.weights.size()) {}

Result<std::unique_ptr<BindContext>> BindContext::Create(const Program& program,
                                                         const StepLimits& limits,
                                                         WorkerPool& pool) {
  std::unique_ptr<BindContext> context(new BindContext(program, limits, pool));
  SPRY_ASSIGN_OR_RETURN(context->arena_,
                        MemoryRegion::Map(context->plan_.arena_bytes, PageKind::kHuge));
  return context;
}

Matrix BindContext::Resolve(const Tensor& tensor) const {
  std::byte* buffer = arena_.data() + plan_.offset_bytes[tensor.buffer.value()];
  return {.data = buffer + RowBytes(tensor.dtype, tensor.offset),
          .dtype = tensor.dtype,
          .rows = tensor.rows,
          .width = tensor.width,
          .stride = tensor.stride};
}

Result<std::byte*> BindContext::AllocateWeights(int64_t bytes) {
  bytes = AlignUp(bytes);
  if (weight_slabs_.empty() || weight_slabs_.back().bytes() - slab_used_ < bytes) {
    SPRY_ASSIGN_OR_RETURN(MemoryRegion slab,
                          MemoryRegion::Map(std::max(bytes, kSlabBytes), PageKind::kHuge));
    weight_slabs_.push_back(std::move(slab));
    slab_used_ = 0;
  }
  std::byte* at = weight_slabs_.back().data() + slab_used_;
  slab_used_ += bytes;
  weight_bytes_ += bytes;
  return at;
}

Result<HostTensor> BindContext::ReadPart(const WeightHandle& part) const {
  SPRY_ASSIGN_OR_RETURN(HostTensor tensor, part.read());
  if (tensor.dtype != part.dtype || tensor.shape != part.shape) {
    return Internal(fmt::format("weight {} was announced as {} {} but reads as {} {}", part.name,
                                Traits(part.dtype).name, part.shape.ToString(),
                                Traits(tensor.dtype).name, tensor.shape.ToString()));
  }
  const Extent extent = ExtentOf(tensor.shape);
  const DTypeTraits& traits = Traits(tensor.dtype);
  if (extent.columns % traits.block_elements != 0) {
    return InvalidArgument(
        fmt::format("weight {} is {} with rows of {}; they must be multiples of "
                    "{}",
                    part.name, traits.name, extent.columns, traits.block_elements));
  }
  const int64_t expected = extent.rows * RowBytes(tensor.dtype, extent.columns);
  if (static_cast<int64_t>(tensor.data.size()) != expected) {
    return InvalidArgument(fmt::format("weight {} {} {} has {} bytes; {} were expected", part.name,
                                       traits.name, tensor.shape.ToString(), tensor.data.size(),
                                       expected));
  }
  switch (tensor.dtype) {
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      return Unimplemented(
          fmt::format("weight {} is {}, which is no weight type", part.name, traits.name));
    default: break;
  }
  return tensor;
}

Result<HostTensor> BindContext::LoadRaw(const WeightHandle& part) {
  SPRY_ASSIGN_OR_RETURN(HostTensor tensor, ReadPart(part));
  kept_.push_back(tensor.owner);
  return tensor;
}

Result<const float*> BindContext::LoadFloats(WeightId id) {
  if (floats_[id.value()] != nullptr) return floats_[id.value()];
  const WeightRecord& record = program_.weight(id);
  SPRY_ASSIGN_OR_RETURN(
      std::byte* const bytes,
      AllocateWeights(record.rows * record.columns * static_cast<int64_t>(sizeof(float))));
  float* floats = reinterpret_cast<float*>(bytes);
  float* at = floats;
  for (const WeightHandle& part : record.parts) {
    SPRY_ASSIGN_OR_RETURN(const HostTensor tensor, ReadPart(part));
    const Extent extent = ExtentOf(tensor.shape);
    const int64_t row_bytes = RowBytes(tensor.dtype, extent.columns);
    for (int64_t r = 0; r < extent.rows; ++r, at += extent.columns) {
      DequantizeRow(tensor.dtype, tensor.data.data() + r * row_bytes, extent.columns, at);
    }
  }
  floats_[id.value()] = floats;
  return static_cast<const float*>(floats);
}

std::byte* const* BindContext::ShareScratch(int64_t bytes) {
  scratch_bytes_ = std::max(scratch_bytes_, bytes);
  return &scratch_;
}

Status BindContext::AllocateKv(BytesPerBlockFn bytes_per_block) {
  std::vector<int64_t> block_bytes;
  for (const KvLayer& layer : program_.kv_layers) {
    block_bytes.push_back(bytes_per_block(layer, limits_.block_size));
  }
  SPRY_ASSIGN_OR_RETURN(kv_, KvMemory::Map(block_bytes, limits_));
  return {};
}

Status BindContext::FinishBinding() {
  if (scratch_bytes_ == 0) return {};
  SPRY_ASSIGN_OR_RETURN(scratch_region_, MemoryRegion::Map(scratch_bytes_, PageKind::kHuge));
  scratch_ = scratch_region_.data();
  return {};
}

}  // namespace spry
