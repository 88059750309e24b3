// Which files of a Hugging Face folder hold its weights, and all tensors of those. Safetensors go
// before pickled PyTorch files where both are there. An index (model.safetensors.index.json,
// pytorch_model.bin.index.json) alone decides which tensor comes from which file; without one, all
// *.safetensors, or all pytorch_model*.bin, count and no name may be there twice.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_weights.h"

namespace spry {

struct WeightFolder {
  std::string format;           // "safetensors", "pytorch"
  std::string supported_types;  // in the format's words, for messages
  std::vector<FileTensor> tensors;
};

// Nothing is renamed.
Result<WeightFolder> ReadWeightFolder(const std::filesystem::path& folder);

}  // namespace spry
