#include "device/plugin_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "device/plugin.h"

namespace spry {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif

template <typename T>
bool ReadAt(std::ifstream& file, uint64_t offset, T& value) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&value), sizeof value));
}

// The table of sections is written last: a file that was cut short or only partly copied lacks it.
bool HasSections(std::ifstream& file, const Elf64_Ehdr& header) {
  Elf64_Shdr names = {};
  return header.e_shnum > 0 && header.e_shstrndx < header.e_shnum &&
         ReadAt(file, header.e_shoff + header.e_shstrndx * sizeof names, names) &&
         names.sh_type == SHT_STRTAB;
}

// In a process of its own, which the loader may end: a hole in a file's middle is found no other
// way.
bool SurvivesLoading(const fs::path& path) {
  const pid_t child = fork();
  if (child < 0) return true;  // to be found out
  if (child == 0) {
    (void)!freopen("/dev/null", "w", stderr);  // the loader's own words
    // Whether it can be loaded is for the caller to ask, who wants the reason.
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      (void)dlsym(handle, kPluginEntry);
      (void)dlclose(handle);
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string_view WhatIsWrong(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return "is a link that leads nowhere";
  if (!fs::is_regular_file(path, error)) return "is no regular file";
  std::ifstream file(path, std::ios::binary);
  if (!file) return "cannot be read";
  Elf64_Ehdr header = {};
  if (!ReadAt(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return "is no shared library";
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine) {
    return "is for another kind of machine";
  }
  const bool whole = HasSections(file, header) && SurvivesLoading(path);
  return whole ? "" : "is cut short or damaged";
}

}  // namespace

Status CheckPluginFile(const fs::path& path) {
  const std::string_view wrong = WhatIsWrong(path);
  if (wrong.empty()) return {};
  return Unavailable(
      fmt::format("{} {}; build it with SPRY_CUDA=ON, or copy it again", path.string(), wrong));
}

}  // namespace spry
