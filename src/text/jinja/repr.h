// How Python prints values: str() and repr().
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/value.h"

namespace spry::jinja {

class Runtime;

// The shortest text that reads back as `value`; with an exponent below 1e-4 and from 1e16.
std::string FloatRepr(double value);

void AppendTextRepr(std::string_view text, std::string& out);

// repr(value), appended. Fails at the limits.
Status AppendRepr(Runtime& runtime, const Value& value, std::string& out);

}  // namespace spry::jinja
