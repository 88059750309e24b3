// /v1/chat/completions: the request, and the prompt that a dialogue makes.
#pragma once

#include <optional>

#include "server/api_request.h"
#include "server/request_fields.h"
#include "server/served_model.h"

namespace spry {

// Reads `body` into `request`, or says what is wrong with it.
std::optional<ApiError> ReadChatRequest(const boost::json::object& body, const ServedModel& model,
                                        ApiRequest& request);

// Reads messages and all that shapes their prompt, and renders it: what /tokenize shares.
std::optional<ApiError> ReadDialogue(RequestFields& fields, const ServedModel& model,
                                     ApiPrompt& prompt);

}  // namespace spry
