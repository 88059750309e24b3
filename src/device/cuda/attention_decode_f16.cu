#include "device/cuda/attention_decode.cuh"

namespace spry::cuda {
template void LaunchDecode<F16>(const DecodeArgs&, const StepState&, const LaunchContext&);
}  // namespace spry::cuda
