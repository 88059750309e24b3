// /tokenize and /detokenize, in vLLM's forms.
#pragma once

#include "server/http.h"
#include "server/served_model.h"

namespace spry {

HttpResponse AnswerTokenize(const HttpRequest& request, const ServedModel& model);
HttpResponse AnswerDetokenize(const HttpRequest& request, const ServedModel& model);

}  // namespace spry
