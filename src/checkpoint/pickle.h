// Reads the pickle inside a torch.save file: a dictionary from names to tensors. Only the opcodes
// and globals that such dictionaries need are known; a global is a word to compare, never code to
// find or run. Anything else is refused with its name and place. Values live in flat lists, so that
// nesting costs no stack and shared values no copies; their number is limited.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace spry {

struct StorageType {
  std::string_view name;  // "FloatStorage"
  int64_t element_bytes = 0;
  std::optional<DType> dtype;  // nothing: a type that spry does not serve
};

struct PickledStorage {
  const StorageType* type = nullptr;
  std::string_view key;  // of its bytes: the zip entry data/<key>
  int64_t elements = 0;
};

// As the file has it; whether it fits its storage is for the caller to check.
struct PickledTensor {
  std::string_view name;
  PickledStorage storage;
  int64_t offset = 0;  // elements of the storage, as are strides
  Shape shape;
  std::array<int64_t, Shape::kMaxRank> strides = {};
};

struct PickleText {
  std::string file;     // opens every message
  uint64_t offset = 0;  // of the text in the file
  std::string_view text;
};

// Names and keys point into the text.
Result<std::vector<PickledTensor>> ReadTensorPickle(const PickleText& pickle);

}  // namespace spry
