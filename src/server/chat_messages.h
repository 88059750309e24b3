// The messages of a chat request, checked and made ready for a chat template.
#pragma once

#include <boost/json.hpp>
#include <optional>

#include "server/api_error.h"
#include "text/jinja/value.h"

namespace spry {

// Content that is null or absent becomes the empty text, as in vLLM; the arguments of tool calls
// become objects. Parts that are not text are refused.
std::optional<ApiError> ReadMessages(const boost::json::array& messages, jinja::Value& out);

// A JSON value as templates see it.
jinja::Value ToJinja(const boost::json::value& value);

}  // namespace spry
