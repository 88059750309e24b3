#include "tests/tidy/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tests/tidy/cpp_text.h"

namespace spry::tidy {
namespace {

bool IsKernelFile(std::string_view path) {
  if (HasSuffix(path, {".cu", ".cuh"})) return true;
  constexpr std::string_view kCpu = "src/device/cpu/";
  if (!path.starts_with(kCpu)) return false;
  path.remove_prefix(kCpu.size());
  return path.starts_with("simd/") || path.starts_with("avx2/") || path.starts_with("avx512/") ||
         path.starts_with("amx/");
}

int FileCap(std::string_view path) {
  if (IsKernelFile(path)) return kMaxKernelFileLines;
  if (path.starts_with("src/models/") && path.ends_with(".cc")) return kMaxModelFileLines;
  return kMaxFileLines;
}

// Characters, not bytes: UTF-8's continuation bytes are 10xxxxxx.
int Columns(std::string_view line) {
  return static_cast<int>(std::ranges::count_if(
      line, [](char c) { return (static_cast<unsigned>(c) & 0xC0) != 0x80; }));
}

void CheckLines(const SourceFile& file, std::vector<Finding>& findings) {
  const std::vector<std::string_view> lines = Lines(file.text);
  const int line_count = static_cast<int>(lines.size());
  if (line_count > FileCap(file.path)) {
    findings.push_back({file.path, line_count,
                        fmt::format("{} lines; the cap is {}", line_count, FileCap(file.path))});
  }
  for (int i = 0; i < line_count; ++i) {
    if (Columns(lines[i]) > kMaxColumns) {
      findings.push_back(
          {file.path, i + 1,
           fmt::format("{} columns; the cap is {}", Columns(lines[i]), kMaxColumns)});
    }
  }
}

void CheckFunctions(const SourceFile& file, std::vector<Finding>& findings) {
  const FunctionScan scan = Functions(file.text);
  if (!scan.balanced) {
    findings.push_back({file.path, 1, "braces don't balance, so functions can't be measured"});
  }
  const int cap = IsKernelFile(file.path) ? kMaxKernelFunctionLines : kMaxFunctionLines;
  for (const FunctionSpan& function : scan.functions) {
    if (function.line_count <= cap) continue;
    findings.push_back({file.path, function.first_line,
                        fmt::format("function of {} lines; the cap is {}: {:.60}",
                                    function.line_count, cap, function.head)});
  }
}

}  // namespace

std::vector<Finding> CheckSizes(const std::vector<SourceFile>& files) {
  std::vector<Finding> findings;
  for (const SourceFile& file : files) {
    if (!IsCode(file.path)) continue;
    CheckLines(file, findings);
    if (IsCpp(file.path)) CheckFunctions(file, findings);
  }
  return findings;
}

}  // namespace spry::tidy
