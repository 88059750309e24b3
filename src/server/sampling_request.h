// The fields that chat and completions have in common, with vLLM's limits.
#pragma once

#include <optional>
#include <string_view>

#include "server/api_request.h"
#include "server/request_fields.h"
#include "server/served_model.h"

namespace spry {

// Fails `fields` when the model that is asked for is not served here. None asked for: the first.
void ReadModel(RequestFields& fields, const ServedModel& model);

ApiError UnknownModel(std::string_view asked, const ServedModel& model);

// Everything but the prompt, max_tokens, logprobs and echo.
void ReadCommonFields(RequestFields& fields, const ServedModel& model, ApiRequest& request);

// max_completion_tokens, or else max_tokens.
std::optional<int> ReadMaxTokens(RequestFields& fields, int least);

// What FitPrompt goes by.
struct PromptFit {
  std::optional<int> max_tokens;  // as asked for
  int otherwise = 0;              // when none is asked for, or what fits of it; 0: what fits
  std::optional<int> truncate;    // truncate_prompt_tokens: -1: to what the model takes
  bool keep_front = false;        // of a prompt that is truncated, instead of its end
};
PromptFit ReadTruncation(RequestFields& fields, const ServedModel& model);

// Truncates the prompt, and sees that it and its answer fit the model.
std::optional<ApiError> FitPrompt(const PromptFit& fit, const ServedModel& model,
                                  ApiPrompt& prompt);

// Tells a request that has fields which OpenAI or vLLM define and this server does not serve.
void RefuseUnserved(RequestFields& fields);

}  // namespace spry
