// Which kernels a device gets: the widest instruction set that the machine has, or the one asked
// for. Decided once, when the device is made.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/kernel.h"
#include "device/cpu/machine.h"

namespace spry {

struct KernelChoice {
  std::string_view name;  // of the widest set in the table: "avx512"
  KernelTable table = {};
  bool packs_weights = false;  // linears copy their weights to the form of simd/packed_weight.h
  std::vector<CpuAttentionBackend> attention;  // best first
};

// InvalidArgument when the machine lacks what `isa` (or spry at all) needs, naming it.
Result<KernelChoice> ChooseKernels(CpuIsa isa, const CpuFeatures& features);

}  // namespace spry
