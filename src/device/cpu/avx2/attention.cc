// attention and write_kv for AVX2, FMA and F16C.
#include "device/cpu/simd/attention_tile.h"
#include "device/cpu/simd/vec_avx2.h"

namespace spry {

const AttentionKernels& Avx2AttentionKernels() {
  static const AttentionKernels kKernels = MakeAttentionKernels<Avx2, 3>();
  return kKernels;
}

}  // namespace spry
