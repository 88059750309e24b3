// Models that are split over several GGUF files: "<name>-00001-of-00003.gguf" and so on. Each file
// is a GGUF file of its own with some of the tensors; the first has the model's metadata too. Every
// file states its place with split.no (from 0), split.count and split.tensors.count (of all files).
#pragma once

#include <filesystem>

#include "base/status.h"
#include "checkpoint/gguf.h"

namespace spry {

// The model that the file at `path` holds or, as any member of a set, belongs to: the first file's
// metadata and the tensors of all. Errors name the member that is missing or is of another set.
Result<GgufFile> ReadGgufModel(const std::filesystem::path& path);

}  // namespace spry
