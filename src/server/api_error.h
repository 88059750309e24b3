// What went wrong with a request, in OpenAI's form:
// {"error":{"message":...,"type":...,"param":...,"code":...}}, and its HTTP status.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http.h"

namespace spry {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;      // the field at fault; empty: null
  std::string code = {};  // empty: the status' own, or null
};

ApiError BadRequest(std::string message, std::string param = {});

// Of what the engine or the text layer says. Without `param` it is the field that the message
// begins with, if it does.
ApiError ToApiError(const Status& status, std::string param = {});

// Of what a library throws; memory that can't be had is 503.
ApiError ToApiError(const std::exception& failure);

// {"error":{...}}, appended.
void WriteError(const ApiError& error, std::string& out);

// The answer; "try again later" comes with Retry-After.
HttpResponse ErrorAnswer(const ApiError& error);
HttpResponse ErrorAnswer(int status, std::string message);

}  // namespace spry
