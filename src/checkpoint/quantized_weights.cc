#include "checkpoint/quantized_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "checkpoint/printable.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace spry {
namespace {

bool IsPlain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Of what is plain, matrices that are multiplied and the table of tokens; tables of positions are
// small and added to, as in llama.cpp.
bool IsQuantizable(const WeightHandle& handle) {
  return handle.shape.rank() == 2 && IsPlain(handle.dtype) && handle.name.ends_with(".weight") &&
         !handle.name.ends_with("embed_positions.weight");
}

// As GGUF calls it.
std::string FileType(DType dtype) {
  std::string name(Traits(dtype).name);
  for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

Result<HostTensor> ReadQuantized(const WeightHandle& plain, DType dtype) {
  SPRY_ASSIGN_OR_RETURN(const HostTensor source, plain.read());
  const int64_t rows = source.shape[0], columns = source.shape[1];
  const int64_t source_bytes = RowBytes(source.dtype, columns);
  const int64_t row_bytes = RowBytes(dtype, columns);
  std::shared_ptr<std::byte[]> data(new (std::nothrow) std::byte[rows * row_bytes]);
  if (data == nullptr) {
    return ResourceExhausted(fmt::format("tensor {}: no memory for {} bytes as {}",
                                         Printable(plain.name), rows * row_bytes,
                                         Traits(dtype).name));
  }
  std::vector<float> floats(columns);
  for (int64_t r = 0; r < rows; ++r) {
    DequantizeRow(source.dtype, source.data.data() + r * source_bytes, columns, floats.data());
    if (QuantizeRow(dtype, floats.data(), columns, data.get() + r * row_bytes)) continue;
    return InvalidArgument(
        fmt::format("tensor {}: row {} has a value that is not finite or too large for {}; load it "
                    "without --quantization",
                    Printable(plain.name), r, Traits(dtype).name));
  }
  const std::span<const std::byte> view(data.get(), static_cast<size_t>(rows * row_bytes));
  return HostTensor{.dtype = dtype, .shape = source.shape, .data = view, .owner = std::move(data)};
}

class QuantizedWeights : public Weights {
 public:
  QuantizedWeights(std::shared_ptr<const Weights> plain, DType dtype)
      : plain_(std::move(plain)), dtype_(dtype) {}

  bool Has(std::string_view name) const override { return plain_->Has(name); }

  Result<WeightHandle> Get(std::string_view name, const Shape& expected) const override {
    SPRY_ASSIGN_OR_RETURN(WeightHandle handle, plain_->Get(name, expected));
    if (!IsQuantizable(handle)) return handle;
    if (!HasWholeBlocks(handle)) {
      return InvalidArgument(fmt::format(
          "tensor {} has rows of {} elements; --quantization {} takes multiples of {}",
          Printable(name), expected[1], Traits(dtype_).name, Traits(dtype_).block_elements));
    }
    return Quantized(std::move(handle));
  }

  std::vector<WeightHandle> List() const override {
    std::vector<WeightHandle> handles = plain_->List();
    for (WeightHandle& handle : handles) {
      if (IsQuantizable(handle) && HasWholeBlocks(handle)) handle = Quantized(std::move(handle));
    }
    return handles;
  }

 private:
  bool HasWholeBlocks(const WeightHandle& handle) const {
    return handle.shape[1] % Traits(dtype_).block_elements == 0;
  }

  WeightHandle Quantized(WeightHandle plain) const {
    WeightHandle handle{.name = plain.name,
                        .file_type = FileType(dtype_),
                        .dtype = dtype_,
                        .shape = plain.shape,
                        .read = {}};
    handle.read = [plain = std::move(plain), dtype = dtype_] {
      return ReadQuantized(plain, dtype);
    };
    return handle;
  }

  std::shared_ptr<const Weights> plain_;
  DType dtype_;
};

}  // namespace

std::shared_ptr<const Weights> MakeQuantizedWeights(std::shared_ptr<const Weights> plain,
                                                    DType dtype) {
  CHECK(CanQuantizeTo(dtype));
  return std::make_shared<QuantizedWeights>(std::move(plain), dtype);
}

}  // namespace spry
