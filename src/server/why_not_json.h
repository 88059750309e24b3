// Why a text is no JSON, for whoever wrote it.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

namespace spry {

// What is wrong at byte `at`, where boost::json::parser::write stopped with `error`.
std::string WhyNotJson(std::string_view text, size_t at, const boost::json::error_code& error);

}  // namespace spry
