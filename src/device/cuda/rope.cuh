// The rotation of rope (ops/rope.h), the same bits wherever it happens.
#pragma once

#include "device/cuda/element.cuh"

namespace spry::cuda {

// Neighbouring pairs, (firsts[e], seconds[e]) by the angle of (cosines[e], sines[e]).
template <typename T, int kCount>
__device__ void Rotate(Run<T, kCount>& firsts, Run<T, kCount>& seconds,
                       const Run<float, kCount>& cosines, const Run<float, kCount>& sines) {
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    const float a = ToFloat(firsts.values[e]);
    const float b = ToFloat(seconds.values[e]);
    const float cosine = cosines.values[e];
    const float sine = sines.values[e];
    firsts.values[e] = FromFloat<T>(fmaf(a, cosine, -(b * sine)));
    seconds.values[e] = FromFloat<T>(fmaf(b, cosine, a * sine));
  }
}

}  // namespace spry::cuda
