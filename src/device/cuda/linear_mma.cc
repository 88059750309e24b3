#include "device/cuda/linear_mma.h"

#include "base/check.h"

namespace spry::cuda {

LaunchFn ChooseMmaLinear(DType activation, DType output) {
  CHECK(activation == DType::kF16 || activation == DType::kBF16);
  CHECK(output == activation || output == DType::kF32);
  return activation == DType::kF16 ? ChooseMmaLinearF16(output) : ChooseMmaLinearBf16(output);
}

}  // namespace spry::cuda
