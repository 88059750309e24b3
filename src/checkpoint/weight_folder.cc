#include "checkpoint/weight_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/file_listed.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/printable.h"
#include "checkpoint/pytorch.h"
#include "checkpoint/safetensors.h"

namespace spry {
namespace {

struct Format {
  std::string_view name;
  std::string_view index;   // the index file
  std::string_view prefix;  // of the names of weight files
  std::string_view suffix;  //
  std::string_view types;
  Result<std::vector<FileTensor>> (*read)(const std::filesystem::path& path);
};

// Best first. A folder may have other .bin files (the optimizer's state, arguments of a training).
constexpr Format kFormats[] = {{"safetensors", "model.safetensors.index.json", "", ".safetensors",
                                kSafetensorsTypes, ReadSafetensors},
                               {"pytorch", "pytorch_model.bin.index.json", "pytorch_model", ".bin",
                                kPytorchTypes, ReadPytorch}};

// What the index says: a tensor and the file that it comes from.
struct Placement {
  std::string_view file;
  std::string_view tensor;
  auto operator<=>(const Placement&) const = default;
};

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// Sorted by file, then by tensor.
Result<std::vector<Placement>> ReadPlacements(const JsonFields& index) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<JsonFields> map, index.Object("weight_map"));
  if (!map) return index.Missing("weight_map");
  std::vector<Placement> placements;
  for (const simdjson::dom::key_value_pair field : map->object()) {
    std::string_view file;
    if (field.value.get_string().get(file) != simdjson::SUCCESS || !IsPlainFileName(file)) {
      return InvalidArgument(
          fmt::format("{}: tensor {} needs the name of a file in the same folder", map->where(),
                      Printable(field.key)));
    }
    placements.push_back({.file = file, .tensor = field.key});
  }
  if (placements.empty()) return index.Wrong("weight_map", "at least one tensor");
  std::sort(placements.begin(), placements.end());
  return placements;
}

// Moves what `placements`, all of one file, name from that file's tensors to `tensors`.
Status TakeFromShard(const Format& format, const std::filesystem::path& folder,
                     std::span<const Placement> placements, std::vector<FileTensor>& tensors) {
  const std::filesystem::path path = folder / placements.front().file;
  SPRY_ASSIGN_OR_RETURN(std::vector<FileTensor> shard, format.read(path));
  std::vector<bool> found(placements.size());
  for (FileTensor& tensor : shard) {
    const auto wanted = std::lower_bound(
        placements.begin(), placements.end(), tensor.name,
        [](const Placement& placement, std::string_view name) { return placement.tensor < name; });
    if (wanted == placements.end() || wanted->tensor != tensor.name) continue;
    found[wanted - placements.begin()] = true;
    tensors.push_back(std::move(tensor));
  }
  const auto missing = std::find(found.begin(), found.end(), false);
  if (missing == found.end()) return {};
  return InvalidArgument(
      fmt::format("{}: there is no tensor {}, which {} says is there", path.string(),
                  Printable(placements[missing - found.begin()].tensor), format.index));
}

Result<std::vector<FileTensor>> ReadByIndex(const Format& format,
                                            const std::filesystem::path& folder) {
  SPRY_ASSIGN_OR_RETURN(const JsonText json, JsonText::Read(folder / format.index));
  SPRY_ASSIGN_OR_RETURN(const std::vector<Placement> placements, ReadPlacements(json.root()));
  std::vector<FileTensor> tensors;
  for (auto begin = placements.begin(); begin != placements.end();) {
    const auto end = std::find_if(begin, placements.end(), [&](const Placement& placement) {
      return placement.file != begin->file;
    });
    SPRY_RETURN_IF_ERROR(TakeFromShard(format, folder, std::span(begin, end), tensors));
    begin = end;
  }
  return tensors;
}

struct FolderFiles {
  std::vector<std::filesystem::path> weights[std::size(kFormats)];  // sorted
  std::optional<std::filesystem::path> gguf;
  std::optional<std::filesystem::path> other;  // pickles by other names
};

Result<FolderFiles> ListFiles(const std::filesystem::path& folder) {
  FolderFiles files;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    const std::string name = path.filename().string();
    for (size_t i = 0; i < std::size(kFormats); ++i) {
      const bool named = name.starts_with(kFormats[i].prefix) && name.ends_with(kFormats[i].suffix);
      if (named) files.weights[i].push_back(path);
    }
    const std::string extension = path.extension().string();
    if (extension == ".gguf") files.gguf = path;
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") files.other = path;
  }
  if (error) {
    return InvalidArgument(
        fmt::format("{}: cannot list the folder: {}", folder.string(), error.message()));
  }
  for (std::vector<std::filesystem::path>& paths : files.weights) std::ranges::sort(paths);
  return files;
}

Result<std::vector<FileTensor>> ReadAll(const Format& format,
                                        std::span<const std::filesystem::path> paths) {
  std::vector<FileTensor> tensors;
  for (const std::filesystem::path& path : paths) {
    SPRY_ASSIGN_OR_RETURN(std::vector<FileTensor> more, format.read(path));
    std::move(more.begin(), more.end(), std::back_inserter(tensors));
  }
  return tensors;
}

Status NoWeights(const std::filesystem::path& folder, const FolderFiles& files) {
  if (files.gguf) {
    return InvalidArgument(fmt::format("{}: no *.safetensors, but a GGUF file; open that: {}",
                                       folder.string(), files.gguf->string()));
  }
  return NotFound(
      fmt::format("{}: no weights; expected {} or *.safetensors, or {} or pytorch_model*.bin{}; "
                  "--load-format dummy makes random ones",
                  folder.string(), kFormats[0].index, kFormats[1].index,
                  files.other ? ", not " + Printable(files.other->filename().string()) : ""));
}

}  // namespace

Result<WeightFolder> ReadWeightFolder(const std::filesystem::path& folder) {
  SPRY_ASSIGN_OR_RETURN(const FolderFiles files, ListFiles(folder));
  for (size_t i = 0; i < std::size(kFormats); ++i) {
    const Format& format = kFormats[i];
    const bool has_index = IsListed(folder / format.index);
    if (!has_index && files.weights[i].empty()) continue;
    SPRY_ASSIGN_OR_RETURN(std::vector<FileTensor> tensors, has_index
                                                               ? ReadByIndex(format, folder)
                                                               : ReadAll(format, files.weights[i]));
    return WeightFolder{.format = std::string(format.name),
                        .supported_types = std::string(format.types),
                        .tensors = std::move(tensors)};
  }
  return NoWeights(folder, files);
}

}  // namespace spry
