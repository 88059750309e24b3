#include "device/cpu/kernel_choice.h"

#include <fmt/format.h>

#include "device/cpu/kernel_sets.h"

namespace spry {
namespace {

struct KernelSet {
  CpuIsa isa;
  std::string_view name;
  std::string_view needs;
  bool CpuFeatures::*present;
  void (*use)(KernelTable& table);
  CpuAttentionBackend (*attention)();
};

// Each overlays the ones before it.
constexpr KernelSet kKernelSets[] = {
    {CpuIsa::kAvx2, "avx2", "AVX2, FMA and F16C", &CpuFeatures::avx2, UseAvx2Kernels,
     Avx2Attention},
    {CpuIsa::kAvx512, "avx512", "AVX-512 F, BW, DQ and VL", &CpuFeatures::avx512, UseAvx512Kernels,
     Avx512Attention},
    {CpuIsa::kAmx, "amx", "AMX with bf16 and int8, or the system's leave to use it",
     &CpuFeatures::amx, UseAmxKernels, AmxAttention},
};

}  // namespace

Result<KernelChoice> ChooseKernels(CpuIsa isa, const CpuFeatures& features) {
  if (!features.avx2) {
    return InvalidArgument("this machine lacks AVX2, FMA or F16C; the CPU device needs them");
  }
  KernelChoice choice{
      .name = "reference", .table = ReferenceKernels(), .attention = {ReferenceAttention()}};
  if (isa == CpuIsa::kReference) return choice;
  for (const KernelSet& set : kKernelSets) {
    if (features.*set.present) {
      set.use(choice.table);
      choice.name = set.name;
      choice.packs_weights = true;
      choice.attention = {set.attention(), ReferenceAttention()};
    } else if (isa == set.isa) {
      return InvalidArgument(
          fmt::format("this machine lacks {}, which {} kernels need", set.needs, set.name));
    }
    if (isa == set.isa) break;
  }
  return choice;
}

}  // namespace spry
