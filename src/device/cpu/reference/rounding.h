// What compute types mean for values that are held as f32.
#pragma once

#include "program/program.h"
#include "tensor/dtype.h"
#include "tensor/float16.h"

namespace spry::reference {

inline float RoundTo(DType dtype, float value) {
  if (dtype == DType::kBF16) return Bf16ToFloat(FloatToBf16(value));
  if (dtype == DType::kF16) return F16ToFloat(FloatToF16(value));
  return value;
}

// Plain matrices are of the compute type; f32 here means that nothing is rounded.
inline DType MatrixRounding(const Program& program, DType weight) {
  return IsQuantized(weight) || weight == program.compute ? DType::kF32 : program.compute;
}

}  // namespace spry::reference
