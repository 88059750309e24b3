// The kernels of each instruction set. A set overlays the table below it: it replaces the binders
// of the ops it has kernels for and leaves the others.
#pragma once

#include "device/cpu/kernel.h"

namespace spry {

void UseAvx2Kernels(KernelTable& table);    // avx2/; needs AVX2, FMA, F16C
void UseAvx512Kernels(KernelTable& table);  // avx512/; needs AVX-512 F, BW, DQ, VL beside
void UseAmxKernels(KernelTable& table);     // amx/; needs AVX-512 VNNI and BF16 and AMX beside

// The "cpu" attention backend of each.
CpuAttentionBackend Avx2Attention();
CpuAttentionBackend Avx512Attention();
CpuAttentionBackend AmxAttention();

}  // namespace spry
