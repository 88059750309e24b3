#include "ops/add.h"

namespace spry {

Tensor Add(Tracer& tracer, const Tensor& a, const Tensor& b) {
  DimBinder dims(tracer, "add");
  dims.Bind("N", a.width, "a");
  dims.Bind("N", b.width, "b");
  const Tensor y = tracer.NewBuffer("sum", a.rows, a.width, a.dtype);
  tracer.Emit({.id = OpId::kAdd, .inputs = {a, b}, .outputs = {y}});
  return y;
}

}  // namespace spry
