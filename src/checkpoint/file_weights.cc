#include "checkpoint/file_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "checkpoint/printable.h"
#include "tensor/dtype.h"

namespace spry {
namespace {

using TensorPointer = std::shared_ptr<const FileTensor>;

// Row-major, from a tensor with strides, which has plain elements.
Result<HostTensor> Gather(const FileTensor& tensor) {
  constexpr int kRank = Shape::kMaxRank;
  const int64_t element_bytes = Traits(*tensor.dtype).block_bytes;
  int64_t sizes[kRank] = {1, 1, 1, 1}, steps[kRank] = {};
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const int at = kRank - tensor.shape.rank() + i;
    sizes[at] = tensor.shape[i];
    steps[at] = (*tensor.strides)[i] * element_bytes;
  }
  const int64_t bytes = *tensor.shape.elements() * element_bytes;
  std::shared_ptr<std::byte[]> copy(new (std::nothrow) std::byte[bytes]);
  if (copy == nullptr) {
    return ResourceExhausted(
        fmt::format("tensor {}: no memory for {} bytes", Printable(tensor.name), bytes));
  }
  const std::byte* from = tensor.file->bytes().data() + tensor.offset;
  std::byte* to = copy.get();
  for (int64_t i = 0; i < sizes[0]; ++i) {
    for (int64_t j = 0; j < sizes[1]; ++j) {
      for (int64_t k = 0; k < sizes[2]; ++k) {
        const std::byte* row = from + i * steps[0] + j * steps[1] + k * steps[2];
        for (int64_t l = 0; l < sizes[3]; ++l, to += element_bytes) {
          std::memcpy(to, row + l * steps[3], element_bytes);
        }
      }
    }
  }
  tensor.file->GiveBack(tensor.offset, tensor.bytes);
  const std::span<const std::byte> data(copy.get(), static_cast<size_t>(bytes));
  return HostTensor{
      .dtype = *tensor.dtype, .shape = tensor.shape, .data = data, .owner = std::move(copy)};
}

HostTensor View(const FileTensor& tensor) {
  const size_t offset = static_cast<size_t>(tensor.offset);
  const size_t bytes = static_cast<size_t>(tensor.bytes);
  HostTensor view{.dtype = *tensor.dtype,
                  .shape = tensor.shape,
                  .data = tensor.file->bytes().subspan(offset, bytes),
                  .owner = PagesOwner(tensor.file, offset, bytes)};
  // safetensors only promises alignment by convention; kernels may load whole elements.
  const size_t alignment = IsQuantized(view.dtype) ? 2 : Traits(view.dtype).block_bytes;
  if (offset % alignment != 0) {
    std::shared_ptr<std::byte[]> copy(new std::byte[bytes]);
    std::memcpy(copy.get(), view.data.data(), bytes);
    view.data = {copy.get(), bytes};
    view.owner = std::move(copy);
  }
  return view;
}

class FileWeights : public Weights {
 public:
  FileWeights(std::string source, std::string supported_types, std::vector<TensorPointer> in_order,
              std::vector<TensorPointer> by_name)
      : source_(std::move(source)),
        supported_types_(std::move(supported_types)),
        in_order_(std::move(in_order)),
        by_name_(std::move(by_name)) {}

  bool Has(std::string_view name) const override { return Find(name) != nullptr; }

  Result<WeightHandle> Get(std::string_view name, const Shape& expected) const override {
    const TensorPointer tensor = Find(name);
    if (tensor == nullptr) {
      return NotFound(fmt::format("{}: there is no tensor {}", source_, Printable(name)));
    }
    if (!tensor->dtype) return Refusal(*tensor);
    if (tensor->shape != expected) {
      return InvalidArgument(fmt::format("{}: tensor {} has shape {}, expected {}",
                                         tensor->file->path().string(), Printable(name),
                                         tensor->shape.ToString(), expected.ToString()));
    }
    return Handle(tensor);
  }

  std::vector<WeightHandle> List() const override {
    std::vector<WeightHandle> handles;
    handles.reserve(in_order_.size());
    for (const TensorPointer& tensor : in_order_) handles.push_back(Handle(tensor));
    return handles;
  }

 private:
  TensorPointer Find(std::string_view name) const {
    const auto found = std::lower_bound(
        by_name_.begin(), by_name_.end(), name,
        [](const TensorPointer& tensor, std::string_view wanted) { return tensor->name < wanted; });
    return found != by_name_.end() && (*found)->name == name ? *found : nullptr;
  }

  Status Refusal(const FileTensor& tensor) const {
    return Unimplemented(fmt::format("{}: tensor {} has type {}; supported: {}",
                                     tensor.file->path().string(), Printable(tensor.name),
                                     tensor.file_type, supported_types_));
  }

  WeightHandle Handle(const TensorPointer& tensor) const {
    WeightHandle handle{.name = tensor->name,
                        .file_type = tensor->file_type,
                        .dtype = tensor->dtype.value_or(DType::kU8),
                        .shape = tensor->shape,
                        .read = {}};
    if (tensor->dtype) {
      handle.read = [tensor]() -> Result<HostTensor> {
        return tensor->strides ? Gather(*tensor) : View(*tensor);
      };
    } else {
      handle.read = [refusal = Refusal(*tensor)]() -> Result<HostTensor> { return refusal; };
    }
    return handle;
  }

  std::string source_;
  std::string supported_types_;
  std::vector<TensorPointer> in_order_;
  std::vector<TensorPointer> by_name_;
};

}  // namespace

Result<std::shared_ptr<const Weights>> MakeFileWeights(FileWeightsParams params) {
  std::vector<TensorPointer> in_order;
  in_order.reserve(params.tensors.size());
  for (FileTensor& tensor : params.tensors) {
    in_order.push_back(std::make_shared<const FileTensor>(std::move(tensor)));
  }
  std::vector<TensorPointer> by_name = in_order;
  std::sort(by_name.begin(), by_name.end(),
            [](const TensorPointer& a, const TensorPointer& b) { return a->name < b->name; });
  const auto twice = std::adjacent_find(
      by_name.begin(), by_name.end(),
      [](const TensorPointer& a, const TensorPointer& b) { return a->name == b->name; });
  if (twice != by_name.end()) {
    return InvalidArgument(fmt::format(
        "{}: tensor {} is there twice, in {} and in {}; remove the file that does not belong",
        params.source, Printable((*twice)->name), (*twice)->file->path().filename().string(),
        twice[1]->file->path().filename().string()));
  }
  return std::shared_ptr<const Weights>(
      std::make_shared<FileWeights>(std::move(params.source), std::move(params.supported_types),
                                    std::move(in_order), std::move(by_name)));
}

}  // namespace spry
