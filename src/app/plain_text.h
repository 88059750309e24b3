// Other people's words (a client's, a model file's) on their way to a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace spry {

// What must not get there: it ends the line, steers the terminal (C0, DEL and C1), or changes the
// direction of text.
bool Steers(char32_t code);

// With spaces for all of that, and U+FFFD for what is no UTF-8.
std::string PlainText(std::string_view text);

}  // namespace spry
