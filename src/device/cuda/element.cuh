// Elements of activations, weights and KV in kernels: loads widen to f32, stores round to nearest
// even, everything between is f32. Kernels are templates on the element type; ForDType picks the
// instance when an op is bound.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "device/cuda/kernel.h"
#include "tensor/dtype.h"

namespace spry::cuda {

using F16 = __half;
using Bf16 = __nv_bfloat16;

__device__ inline float ToFloat(float value) { return value; }
__device__ inline float ToFloat(F16 value) { return __half2float(value); }
__device__ inline float ToFloat(Bf16 value) { return __bfloat162float(value); }

template <typename T>
__device__ inline T FromFloat(float value) {
  if constexpr (std::is_same_v<T, F16>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

// 2^x by the instruction, which is off by some units in the last place.
__device__ inline float Exp2(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

template <typename T>
struct ElementOf {};

// fn(ElementOf<T>{}) with the T of an activation, weight or KV dtype.
template <typename Fn>
auto ForDType(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF16: return fn(ElementOf<F16>{});
    case DType::kBF16: return fn(ElementOf<Bf16>{});
    default: CHECK(dtype == DType::kF32); return fn(ElementOf<float>{});
  }
}

// Neighbouring elements, moved at once where there are several.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Run {
  T values[kCount];
};
template <typename T>
inline constexpr int kLongRun = 16 / sizeof(T);

// Whether every row of a matrix of T can be cut into long runs.
template <typename T>
bool HasLongRuns(const Matrix& matrix) {
  return matrix.width % kLongRun<T> == 0 && matrix.stride % kLongRun<T> == 0 &&
         reinterpret_cast<uintptr_t>(matrix.data) % sizeof(Run<T, kLongRun<T>>) == 0;
}

// A Matrix in a kernel.
template <typename T>
struct View {
  T* data = nullptr;
  int64_t stride = 0;

  __device__ T* Row(int64_t r) const { return data + r * stride; }
};

template <typename T>
View<T> ViewOf(const Matrix& matrix) {
  return {reinterpret_cast<T*>(matrix.data), matrix.stride};
}

__device__ inline int32_t NumRows(RowDim dim, const StepState& state) {
  return NumRows(dim, *state.header);
}

template <typename T>
inline const T& ArgsAs(const void* args) {
  return *static_cast<const T*>(args);
}

constexpr int32_t CeilDiv(int64_t count, int64_t size) {
  return static_cast<int32_t>((count + size - 1) / size);
}

}  // namespace spry::cuda
