// Whether a file that a folder may have is there. A link to nothing, a folder of that name or a
// file without leave to read it is there: who then reads it finds out, and says, what is wrong with
// it.
#pragma once

#include <filesystem>
#include <system_error>

namespace spry {

inline bool IsListed(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto type = std::filesystem::symlink_status(path, ignored).type();
  return type != std::filesystem::file_type::not_found;
}

}  // namespace spry
