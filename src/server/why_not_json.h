// JSON that people write, and for them why a text is none.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spry {

// What is wrong at byte `at`, where boost::json::parser::write stopped with `error`.
std::string WhyNotJson(std::string_view text, size_t at, const boost::json::error_code& error);

// InvalidArgument: "not valid JSON: ...", the reason.
Result<boost::json::value> ParseJson(std::string_view text);

}  // namespace spry
