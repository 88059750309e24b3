// /v1/completions: the request.
#pragma once

#include <optional>

#include "server/api_request.h"
#include "server/request_fields.h"
#include "server/served_model.h"

namespace spry {

// Reads `body` into `request`, or says what is wrong with it.
std::optional<ApiError> ReadCompletionRequest(const boost::json::object& body,
                                              const ServedModel& model, ApiRequest& request);

// Ids of `text`, as it is given to the engine.
std::optional<ApiError> EncodePrompt(std::string_view text, bool add_special_tokens,
                                     const ServedModel& model, ApiPrompt& prompt);

}  // namespace spry
