#include "device/cuda/linear_launch.cuh"

namespace spry::cuda {

LaunchFn ChooseMmaLinearBf16(DType output) { return ChooseMmaLinearOf<Bf16>(output); }

}  // namespace spry::cuda
