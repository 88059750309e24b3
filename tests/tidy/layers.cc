#include "tests/tidy/layers.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tests/tidy/cpp_text.h"

namespace spry::tidy {
namespace {

const std::map<std::string, int, std::less<>> kLayerOfFolder = {
    {"base", 0},    {"tensor", 1},     {"api", 1},    {"text", 1},    {"kv", 1},  {"sched", 2},
    {"program", 2}, {"checkpoint", 2}, {"hub", 2},    {"grammar", 2}, {"ops", 3}, {"models", 4},
    {"device", 4},  {"runtime", 5},    {"engine", 6}, {"server", 7},  {"app", 8},
};

// "device/cpu/avx2/dot.h" at depth 0 is "device", at depth 1 "cpu"; empty when there is no such
// folder.
std::string_view FolderAt(std::string_view path, int depth) {
  for (; depth > 0; --depth) {
    const size_t slash = path.find('/');
    if (slash == std::string_view::npos) return {};
    path.remove_prefix(slash + 1);
  }
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view{} : path.substr(0, slash);
}

// Why `from` may not include `to` (both relative to src/); empty when it may.
std::string Objection(std::string_view from, std::string_view to) {
  const std::string_view from_folder = FolderAt(from, 0);
  const std::string_view to_folder = FolderAt(to, 0);
  const auto from_layer = kLayerOfFolder.find(from_folder);
  const auto to_layer = kLayerOfFolder.find(to_folder);
  if (from_layer == kLayerOfFolder.end()) {
    return fmt::format("src/{} is no folder of the layer table", from_folder);
  }
  if (to_layer == kLayerOfFolder.end()) {
    return fmt::format("\"{}\": includes are relative to src/ and begin with a folder of it", to);
  }
  if (from_folder != to_folder) {
    if (to_layer->second < from_layer->second) return "";
    return fmt::format("{} (layer {}) may not include {} (layer {})", from_folder,
                       from_layer->second, to_folder, to_layer->second);
  }
  const std::string_view to_device = FolderAt(to, 1);
  if (from_folder == "device" && !to_device.empty() && to_device != FolderAt(from, 1)) {
    return fmt::format("device/{} is for its own files only", to_device);
  }
  return "";
}

bool IsBannedOnCuda(const Include& include) {
  return include.path.starts_with("fmt/") || include.path.starts_with("spdlog/");
}

// Follows quoted includes from one CUDA source.
class CudaWalk {
 public:
  explicit CudaWalk(const std::map<std::string, const SourceFile*>& files) : files_(files) {}

  void Visit(const std::string& path, const std::string& chain) {
    const auto file = files_.find(path);
    if (file == files_.end() || !seen_.insert(path).second) return;
    for (const Include& include : Includes(file->second->text)) {
      if (IsBannedOnCuda(include)) {
        findings.push_back(
            {path, include.line, fmt::format("<{}> reaches CUDA code: {}", include.path, chain)});
      } else if (include.quoted) {
        Visit("src/" + include.path, chain + " -> " + include.path);
      }
    }
  }

  std::vector<Finding> findings;

 private:
  const std::map<std::string, const SourceFile*>& files_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<Finding> CheckLayers(const std::vector<SourceFile>& files) {
  std::set<std::string, std::less<>> paths;
  for (const SourceFile& file : files) paths.insert(file.path);

  std::vector<Finding> findings;
  for (const SourceFile& file : files) {
    if (!file.path.starts_with("src/") || !IsCpp(file.path)) continue;
    for (const Include& include : Includes(file.text)) {
      if (!include.quoted) continue;
      std::string objection = Objection(std::string_view(file.path).substr(4), include.path);
      if (objection.empty() && !paths.contains("src/" + include.path)) {
        objection = fmt::format("\"{}\" is no file of src/", include.path);
      }
      if (!objection.empty()) findings.push_back({file.path, include.line, objection});
    }
  }
  return findings;
}

std::vector<Finding> CheckCudaReach(const std::vector<SourceFile>& files) {
  std::map<std::string, const SourceFile*> by_path;
  for (const SourceFile& file : files) by_path[file.path] = &file;

  CudaWalk walk(by_path);
  for (const SourceFile& file : files) {
    if (file.path.starts_with("src/") && HasSuffix(file.path, {".cu", ".cuh"})) {
      walk.Visit(file.path, file.path);
    }
  }
  return walk.findings;
}

}  // namespace spry::tidy
