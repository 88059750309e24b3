// Which kernels an instruction set has. Compiled for any machine: only the kernels themselves are
// not.
#include "device/cpu/kernel_sets.h"

#include "device/cpu/simd/linear.h"
#include "device/cpu/simd/linear_kernels.h"

namespace spry {
namespace {

LinearKernels MakeAvx2Linear() {
  LinearKernels kernels;
  AddAvx2Linear(kernels);
  return kernels;
}

LinearKernels MakeAvx512Linear() {
  LinearKernels kernels = MakeAvx2Linear();
  AddAvx512Linear(kernels);
  if (__builtin_cpu_supports("avx512vnni")) AddAvx512VnniLinear(kernels);
  if (__builtin_cpu_supports("avx512bf16")) AddAvx512Bf16Linear(kernels);
  return kernels;
}

Result<BoundCall> BindAvx2Linear(const OpRecord& op, BindContext& context) {
  static const LinearKernels kKernels = MakeAvx2Linear();
  return BindLinear(op, context, kKernels);
}

Result<BoundCall> BindAvx512Linear(const OpRecord& op, BindContext& context) {
  static const LinearKernels kKernels = MakeAvx512Linear();
  return BindLinear(op, context, kKernels);
}

}  // namespace

void UseAvx2Kernels(KernelTable& table) { table[static_cast<int>(OpId::kLinear)] = BindAvx2Linear; }

void UseAvx512Kernels(KernelTable& table) {
  table[static_cast<int>(OpId::kLinear)] = BindAvx512Linear;
}

}  // namespace spry
