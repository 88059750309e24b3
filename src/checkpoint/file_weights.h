// The weights of a checkpoint that lies in mapped files, whatever their format: a table of where
// each tensor's bytes are. Readers of a format fill the table and have checked that every range
// lies inside its file and is as long as shape, type and strides say. Immutable, safe from any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mapped_file.h"

namespace spry {

struct FileTensor {
  std::string name;
  std::string file_type;       // in the file's own words
  std::optional<DType> dtype;  // nothing: a type that spry does not serve
  Shape shape;
  std::shared_ptr<const MappedFile> file;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  // In elements; nothing: row-major. A tensor with strides is copied when it is read.
  std::optional<std::array<int64_t, Shape::kMaxRank>> strides = {};
};

struct FileWeightsParams {
  std::string source;           // the file or folder, for messages
  std::string supported_types;  // "F32, F16, BF16", for messages
  std::vector<FileTensor> tensors;
};

// Errors: the same name twice (both files are named).
Result<std::shared_ptr<const Weights>> MakeFileWeights(FileWeightsParams params);

}  // namespace spry
