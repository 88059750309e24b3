#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "checkpoint/json_fields.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors.h"

namespace spry {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";

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
Status TakeFromShard(const std::filesystem::path& folder, std::span<const Placement> placements,
                     std::vector<FileTensor>& tensors) {
  const std::filesystem::path path = folder / placements.front().file;
  SPRY_ASSIGN_OR_RETURN(std::vector<FileTensor> shard, ReadSafetensors(path));
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
                  Printable(placements[missing - found.begin()].tensor), kIndexName));
}

Result<std::vector<FileTensor>> ReadByIndex(const std::filesystem::path& folder) {
  SPRY_ASSIGN_OR_RETURN(const JsonText json, JsonText::Read(folder / kIndexName));
  SPRY_ASSIGN_OR_RETURN(const std::vector<Placement> placements, ReadPlacements(json.root()));
  std::vector<FileTensor> tensors;
  for (auto begin = placements.begin(); begin != placements.end();) {
    const auto end = std::find_if(begin, placements.end(), [&](const Placement& placement) {
      return placement.file != begin->file;
    });
    SPRY_RETURN_IF_ERROR(TakeFromShard(folder, std::span(begin, end), tensors));
    begin = end;
  }
  return tensors;
}

struct WeightFiles {
  std::vector<std::filesystem::path> safetensors;
  std::optional<std::filesystem::path> pickled;
  std::optional<std::filesystem::path> gguf;
};

Result<WeightFiles> ListWeightFiles(const std::filesystem::path& folder) {
  WeightFiles files;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    const std::string extension = path.extension().string();
    if (extension == ".safetensors") files.safetensors.push_back(path);
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") files.pickled = path;
    if (extension == ".gguf") files.gguf = path;
  }
  if (error) {
    return InvalidArgument(
        fmt::format("{}: cannot list the folder: {}", folder.string(), error.message()));
  }
  std::sort(files.safetensors.begin(), files.safetensors.end());
  return files;
}

}  // namespace

Result<std::vector<FileTensor>> ReadSafetensorsFolder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / kIndexName, ignored)) return ReadByIndex(folder);
  SPRY_ASSIGN_OR_RETURN(const WeightFiles files, ListWeightFiles(folder));
  if (files.safetensors.empty() && files.pickled) {
    return Unimplemented(fmt::format(
        "{}: only pickled PyTorch weights ({}), supported: safetensors; convert with transformers: "
        "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new_folder)",
        folder.string(), files.pickled->filename().string()));
  }
  if (files.safetensors.empty() && files.gguf) {
    return InvalidArgument(fmt::format("{}: no *.safetensors, but a GGUF file; open that: {}",
                                       folder.string(), files.gguf->string()));
  }
  if (files.safetensors.empty()) {
    return NotFound(
        fmt::format("{}: no weights; expected {} or *.safetensors", folder.string(), kIndexName));
  }
  std::vector<FileTensor> tensors;
  for (const std::filesystem::path& path : files.safetensors) {
    SPRY_ASSIGN_OR_RETURN(std::vector<FileTensor> more, ReadSafetensors(path));
    std::move(more.begin(), more.end(), std::back_inserter(tensors));
  }
  return tensors;
}

}  // namespace spry
