// /tokenize and /detokenize, in vLLM's forms.
#pragma once

#include "server/http.h"
#include "server/served_model.h"

namespace spry {

void AnswerTokenize(const ServedModel& model, HttpExchange& exchange);
void AnswerDetokenize(const ServedModel& model, HttpExchange& exchange);

}  // namespace spry
