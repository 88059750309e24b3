// The log on stderr, the server's and the warnings of every command: one line an event, "time level
// event key=value ...". A value with spaces or quotes is quoted, so that lines can be cut at
// spaces. Where nobody reads them lines are left out, and the next one says how many. For one
// thread.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

namespace spry {

enum class LogLevel { kInfo, kWarning, kError };

using LogFields = std::initializer_list<std::pair<std::string_view, std::string_view>>;
void Log(LogLevel level, std::string_view event, LogFields fields);

}  // namespace spry
