// Errors in OpenAI's form, one line: {"error":{"message":...,"type":...,"param":null,"code":404}}.
// The type is named after the status, as vLLM names it, and the code is the status.
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace spry {

// `message` may hold what a client sent: it is escaped, and bytes beyond ASCII become U+FFFD.
HttpResponse ErrorResponse(int status, std::string_view message);

}  // namespace spry
