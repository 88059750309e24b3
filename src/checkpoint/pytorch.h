// What torch.save writes since PyTorch 1.6: a zip file with data.pkl, a pickled dictionary from
// names to tensors (pickle.h), and the bytes of their storages. Nothing in the file is executed and
// nothing but the zip directory and data.pkl is read. Tensors may share storages and have strides.
#pragma once

#include <filesystem>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_weights.h"

namespace spry {

// That spry serves.
inline constexpr char kPytorchTypes[] = "FloatStorage, HalfStorage, BFloat16Storage";

// The tensors of one file in the order of the dictionary. Types that spry does not serve are listed
// without a dtype.
Result<std::vector<FileTensor>> ReadPytorch(const std::filesystem::path& path);

}  // namespace spry
