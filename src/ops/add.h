// add: y = a + b, [rows, N].
#pragma once

#include "program/tracer.h"

namespace spry {

Tensor Add(Tracer& tracer, const Tensor& a, const Tensor& b);

}  // namespace spry
