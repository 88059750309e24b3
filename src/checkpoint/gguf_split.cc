#include "checkpoint/gguf_split.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

#include "checkpoint/printable.h"

namespace spry {
namespace {

namespace fs = std::filesystem;

constexpr char kSplitNo[] = "split.no";
constexpr char kSplitCount[] = "split.count";
constexpr char kSplitTensors[] = "split.tensors.count";
constexpr int64_t kMaxFiles = 65535;  // the keys are 16 bits wide
constexpr int64_t kMaxTensorsOfAll = (int64_t{1} << 31) - 1;

std::string NameEnding(int64_t index, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

// What the first member that was opened says of the whole set.
struct GgufSet {
  fs::path folder;
  std::string prefix;  // of the files' names
  int64_t count = 0;
  int64_t tensors = 0;

  fs::path Member(int64_t index) const { return folder / (prefix + NameEnding(index, count)); }
};

// Other members are found by name, so the name must be what the keys say.
Result<GgufSet> SetOf(const fs::path& path, const GgufMetadata& metadata, int64_t count) {
  GgufSet set = {.folder = path.parent_path(), .prefix = path.filename().string(), .count = count};
  SPRY_ASSIGN_OR_RETURN(const int64_t index, metadata.RequiredInteger(kSplitNo, {0, count - 1}));
  SPRY_ASSIGN_OR_RETURN(set.tensors,
                        metadata.RequiredInteger(kSplitTensors, {0, kMaxTensorsOfAll}));
  const std::string ending = NameEnding(index, count);
  if (!set.prefix.ends_with(ending)) {
    return InvalidArgument(
        fmt::format("{}: the file is number {} of a model split over {}, so its name must end in "
                    "{}; rename it to what it was",
                    metadata.file(), index + 1, count, ending));
  }
  set.prefix.resize(set.prefix.size() - ending.size());
  return set;
}

Status CheckMember(const GgufMetadata& metadata, const GgufSet& set, int64_t index) {
  const auto check = [&](const char* key, int64_t max, int64_t expected) -> Status {
    SPRY_ASSIGN_OR_RETURN(const int64_t value, metadata.RequiredInteger(key, {0, max}));
    if (value == expected) return {};
    return metadata.Wrong(
        key, fmt::format("{}", value),
        fmt::format("{}, as this file's name and the rest of the set have it", expected));
  };
  SPRY_RETURN_IF_ERROR(check(kSplitCount, kMaxFiles, set.count));
  SPRY_RETURN_IF_ERROR(check(kSplitNo, kMaxFiles, index));
  return check(kSplitTensors, kMaxTensorsOfAll, set.tensors);
}

Result<GgufFile> ReadMember(const fs::path& path, const GgufSet& set, int64_t index) {
  const fs::path member = set.Member(index);
  std::error_code error;
  if (!fs::exists(member, error)) {
    return NotFound(fmt::format("{}: does not exist; {} is of a model split over {} files",
                                member.string(), path.filename().string(), set.count));
  }
  SPRY_ASSIGN_OR_RETURN(GgufFile file, ReadGguf(member));
  SPRY_RETURN_IF_ERROR(CheckMember(file.metadata, set, index));
  return file;
}

}  // namespace

Result<GgufFile> ReadGgufModel(const fs::path& path) {
  SPRY_ASSIGN_OR_RETURN(GgufFile opened, ReadGguf(path));
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> count,
                        opened.metadata.Integer(kSplitCount, {0, kMaxFiles}));
  if (count.value_or(0) <= 1) return opened;
  SPRY_ASSIGN_OR_RETURN(const GgufSet set, SetOf(path, opened.metadata, *count));
  SPRY_ASSIGN_OR_RETURN(GgufFile model, ReadMember(path, set, 0));
  for (int64_t i = 1; i < set.count; ++i) {
    SPRY_ASSIGN_OR_RETURN(GgufFile member, ReadMember(path, set, i));
    std::move(member.tensors.begin(), member.tensors.end(), std::back_inserter(model.tensors));
  }
  if (static_cast<int64_t>(model.tensors.size()) != set.tensors) {
    return InvalidArgument(fmt::format("{}: {} is {}, but the {} files of the set hold {} tensors",
                                       model.metadata.file(), kSplitTensors, set.tensors, set.count,
                                       model.tensors.size()));
  }
  return model;
}

}  // namespace spry
