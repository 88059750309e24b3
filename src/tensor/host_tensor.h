// A tensor in host memory as a checkpoint gives it, and the promise of one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace spry {

// Row-major, rows of `shape`'s last dim laid out as the dtype says; read only.
// `owner` keeps `data` alive. When the last copy goes, a mapped file gets its pages back.
struct HostTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> data;
  std::shared_ptr<const void> owner;
};

// A weight that can be read when a device is ready to repack it: a mapped file hands out a view,
// dummy weights are made on the spot. Reading twice is allowed and gives the same bytes.
struct WeightHandle {
  std::string name;  // as Hugging Face checkpoints name it, whatever the file format
  // In the file's own words ("BF16", "Q4_K"). For a type that spry does not serve, `read` says so
  // and dtype means nothing.
  std::string file_type;
  DType dtype = DType::kF32;
  Shape shape;
  std::function<Result<HostTensor>()> read;
};

}  // namespace spry
