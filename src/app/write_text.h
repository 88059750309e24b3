// Results on their way out. Errors carry the system's reason, a full disk's too.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace spry {

// Writes and flushes.
Status WriteStdout(std::string_view text);
// Words to the user, for which there is no other way out: what can't be written is left.
void WriteStderr(std::string_view text);
// "spry: " and the message, as one plain line, whatever a file or a library put into it.
void Complain(std::string_view message);
// Replaces the file.
Status WriteFile(const std::string& path, std::string_view text);
// So that a long benchmark does not end with a file that cannot be written. OK for an empty path.
Status CheckWritable(const std::string& path);

}  // namespace spry
