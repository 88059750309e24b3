// Names that come out of a file, made fit for a message of one line.
#pragma once

#include <string>
#include <string_view>

namespace spry {

// In single quotes; bytes that are not printable ASCII become \xNN, long names are cut.
std::string Printable(std::string_view name);

}  // namespace spry
