#include "tests/tidy/source_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace spry::tidy {
namespace {

namespace fs = std::filesystem;

// What .gitignore names, and git's own folder.
bool IsIgnoredFolder(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name == ".git" || name == "build" || name == ".cache" || name == "__pycache__";
}

std::vector<SourceFile> ReadTree(const fs::path& root) {
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    if (it->is_directory() && IsIgnoredFolder(it->path())) it.disable_recursion_pending();
    // In a worktree .git is a file.
    if (!it->is_regular_file() || it->path().filename() == ".git") continue;
    std::ifstream in(it->path(), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (text.find('\0') != std::string::npos) text.clear();
    files.push_back({fs::relative(it->path(), root).generic_string(), std::move(text)});
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

}  // namespace

const std::vector<SourceFile>& ThisTree() {
  static const std::vector<SourceFile> tree = ReadTree(SPRY_SOURCE_DIR);
  return tree;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool HasSuffix(std::string_view path, std::initializer_list<std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](std::string_view s) { return path.ends_with(s); });
}

bool IsCpp(std::string_view path) { return HasSuffix(path, {".h", ".cc", ".cu", ".cuh"}); }

bool IsCode(std::string_view path) {
  return IsCpp(path) || HasSuffix(path, {".py", ".sh", ".cmake", "CMakeLists.txt"}) ||
         path == "test" || path == "demo" || path == ".ci/run";
}

std::string Listed(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& f : findings) out += fmt::format("{}:{}: {}\n", f.path, f.line, f.rule);
  return out;
}

}  // namespace spry::tidy
