// The chat page at /, built in from chat_page.html.
#pragma once

#include <string_view>

namespace spry {

std::string_view ChatPage();

// What the page may load: nothing from elsewhere.
inline constexpr std::string_view kChatPagePolicy =
    "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace spry
