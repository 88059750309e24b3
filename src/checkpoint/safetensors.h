// The safetensors format: 8 bytes little-endian header length, a JSON header, then the tensors'
// bytes without gaps. Nothing but the header is read.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_weights.h"

namespace spry {

inline constexpr char kSafetensorsTypes[] = "F32, F16, BF16";  // that spry serves

// The tensors of one file in the order of their bytes. The file must satisfy what the reference
// library demands: header of at most 100 MB, ranges that cover the data exactly once, each as long
// as shape and type say. Types that spry does not serve are listed without a dtype.
Result<std::vector<FileTensor>> ReadSafetensors(const std::filesystem::path& path);

}  // namespace spry
