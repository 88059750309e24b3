// Reads what a user names on the command line: whole, and not without end.
#pragma once

#include <cstdio>
#include <string>

#include "base/status.h"

namespace spry {

// At most 1 GiB, so that a device file ends in an error. Errors name the file and the reason.
Result<std::string> ReadText(std::FILE* file, const std::string& name);
Result<std::string> ReadTextFile(const std::string& path);

}  // namespace spry
