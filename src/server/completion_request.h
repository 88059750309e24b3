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

// Refuses a text that has more bytes than max_model_len tokens can have.
std::optional<ApiError> CheckPromptBytes(size_t bytes, const ServedModel& model,
                                         std::string_view field);
// Ids of `text`, as it is given to the engine.
std::optional<ApiError> EncodePrompt(std::string_view text, bool add_special_tokens,
                                     const ServedModel& model, ApiPrompt& prompt);

}  // namespace spry
