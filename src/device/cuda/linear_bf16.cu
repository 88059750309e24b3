#include "device/cuda/linear_launch.cuh"

namespace spry::cuda {

int32_t CountStreamClusters() { return CountStreamClusters<Bf16>(); }

LaunchFn ChooseMmaLinearBf16(DType output) { return ChooseMmaLinearOf<Bf16>(output); }

}  // namespace spry::cuda
