#include "device/cuda/linear_launch.cuh"

namespace spry::cuda {

LaunchFn ChooseMmaLinearF16(DType output) { return ChooseMmaLinearOf<F16>(output); }

}  // namespace spry::cuda
