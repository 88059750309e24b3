// attention and write_kv for AVX-512 F, BW, DQ, VL.
#include "device/cpu/simd/attention_tile.h"
#include "device/cpu/simd/vec_avx512.h"

namespace spry {

const AttentionKernels& Avx512AttentionKernels() {
  static const AttentionKernels kKernels = MakeAttentionKernels<Avx512, 6>();
  return kKernels;
}

}  // namespace spry
