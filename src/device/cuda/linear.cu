// linear (ops/linear.h): binds the tensor-core kernels (linear_mma.h) where they serve, and holds
// the plain kernel for f32 and for odd shapes. There a block makes 8 rows x 32 outputs, a
// thread one of them: a single chain of fmaf over K in ascending order, whatever the number of
// rows, which is also the CPU reference's order. Tiles of K pass through shared memory as f32.
#include <limits>

#include "device/cuda/element.cuh"
#include "device/cuda/linear_launch.cuh"
#include "device/cuda/linear_mma.h"
#include "device/cuda/normalize.cuh"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace spry::cuda {
namespace {

constexpr int kRows = 8;
constexpr int kOutputs = 32;
constexpr int kTile = 128;  // of K
constexpr int kThreads = kRows * kOutputs;
// Rows of a tile are 16-byte aligned and 4 banks apart, so that 8 threads reading 16 bytes each
// from 8 rows meet all banks once.
constexpr int kTileStride = kTile + 4;

struct LinearArgs {
  Matrix x;
  Matrix y;
  Matrix residual;  // data null: none
  WeightMatrix weight;
  const float* bias = nullptr;
  Activation activation = Activation::kNone;
};

// Rows [first, first + kCount) of a matrix of `num_rows`, columns [k0, k0 + kTile), as f32; what
// lies outside becomes 0 and is not used.
template <int kCount, typename T>
__device__ void LoadTile(const T* data, int64_t stride, int64_t first, int64_t num_rows, int64_t k0,
                         int64_t columns, float (*tile)[kTileStride]) {
#pragma unroll
  for (int i = 0; i < kCount * kTile / kThreads; ++i) {
    const int item = i * kThreads + static_cast<int>(threadIdx.x);
    const int r = item / kTile;
    const int k = item % kTile;
    const bool inside = first + r < num_rows && k0 + k < columns;
    tile[r][k] = inside ? ToFloat(data[(first + r) * stride + k0 + k]) : 0.0f;
  }
}

__device__ float AddProducts(const float* x, const float* w, int count, float sum) {
  int k = 0;
#pragma unroll 8
  for (; k + 4 <= count; k += 4) {
    const float4 a = *reinterpret_cast<const float4*>(x + k);
    const float4 b = *reinterpret_cast<const float4*>(w + k);
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    sum = fmaf(a.w, b.w, sum);
  }
  for (; k < count; ++k) sum = fmaf(x[k], w[k], sum);
  return sum;
}

template <typename T, typename Y>
__global__ void __launch_bounds__(kThreads) LinearKernel(LinearArgs args, StepState state) {
  const int32_t num_rows = NumRows(args.x.rows, state);
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  if (first_row >= num_rows) return;
  __shared__ __align__(16) float x_tile[kRows][kTileStride];
  __shared__ __align__(16) float w_tile[kOutputs][kTileStride];
  const int64_t first_output = int64_t{blockIdx.x} * kOutputs;
  const int64_t columns = args.weight.columns;
  const auto* x = reinterpret_cast<const T*>(args.x.data);
  const auto* w = reinterpret_cast<const T*>(args.weight.data);
  const int row = static_cast<int>(threadIdx.x) / kOutputs;
  const int output = static_cast<int>(threadIdx.x) % kOutputs;
  float sum = 0.0f;
  for (int64_t k0 = 0; k0 < columns; k0 += kTile) {
    LoadTile<kRows>(x, args.x.stride, first_row, num_rows, k0, columns, x_tile);
    LoadTile<kOutputs>(w, columns, first_output, args.weight.rows, k0, columns, w_tile);
    __syncthreads();
    const int64_t left = columns - k0;
    sum = AddProducts(x_tile[row], w_tile[output], left < kTile ? static_cast<int>(left) : kTile,
                      sum);
    __syncthreads();
  }
  const int64_t r = first_row + row;
  const int64_t n = first_output + output;
  if (r >= num_rows || n >= args.weight.rows) return;
  if (args.bias != nullptr) sum += args.bias[n];
  sum = ApplyActivation(args.activation, sum);
  if (args.residual.data != nullptr) {
    sum += ToFloat(reinterpret_cast<const Y*>(args.residual.data)[r * args.residual.stride + n]);
  }
  reinterpret_cast<Y*>(args.y.data)[r * args.y.stride + n] = FromFloat<Y>(sum);
}

template <typename T, typename Y>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const LinearArgs& linear = ArgsAs<LinearArgs>(args);
  const int32_t rows = context.shape.Of(linear.x.rows);
  if (rows == 0) return;
  const dim3 grid(CeilDiv(linear.weight.rows, kOutputs), CeilDiv(rows, kRows));
  LinearKernel<T, Y><<<grid, kThreads, 0, context.stream>>>(linear, state);
}

// The norm that was folded into a linear, as an op of its own.
OpRecord NormOf(const OpRecord& op, const LinearParams& params) {
  OpRecord norm{.id = params.norm == NormKind::kLayer ? OpId::kLayerNorm : OpId::kRmsNorm,
                .inputs = {op.inputs[0]},
                .outputs = {op.outputs[1]},
                .params = OpParams::Of(NormParams{params.norm_epsilon})};
  for (int i = params.has_bias ? 2 : 1; i < op.weights.size(); ++i) norm.weights.Add(op.weights[i]);
  return norm;
}

// What gather_samples made x from; nothing when something else made it.
Matrix BeforeGather(const Tensor& x, const BindContext& context) {
  for (const OpRecord& op : context.program().ops) {
    if (op.id != OpId::kGatherSamples || op.outputs[0].buffer != x.buffer) continue;
    return context.Resolve(op.inputs[0]);
  }
  return {};
}

void BindPackedRows(const OpRecord& op, BindContext& context, MmaLinearArgs& args) {
  const bool warpgroups = context.packed_rows(0) != nullptr;
  if (args.best_draws != nullptr && TakesLogits(args.depth, warpgroups)) {
    args.packed = context.packed_rows(0);
    return;
  }
  const bool is_resident = IsResident(args.outputs, args.depth, warpgroups);
  if (!is_resident && !IsStreamed(args.outputs, args.depth, warpgroups) &&
      !IsPipelined(args.outputs, args.depth, warpgroups)) {
    return;
  }
  const HandedRows& handed = context.Handed(op.inputs[0].buffer);
  args.x_handed = handed.when;
  args.packed = handed.when == HandOver::kNever ? context.packed_rows(0) : handed.packed;
  // Only such a kernel packs what it makes (LaunchResident).
  if (is_resident && args.depth == kResidentDepth && args.outputs >= kMinResidentOutputs &&
      !op.params.As<LinearParams>().has_residual && args.y.dtype == args.x.dtype) {
    args.taker = TakeRows(op, HandOver::kWhereResident, context);
  }
}

Result<BoundLaunch> BindMma(const OpRecord& op, BindContext& context) {
  const LinearParams params = op.params.As<LinearParams>();
  const WeightMatrix weight = context.Weight(op.weights[0]);
  MmaLinearArgs args{.x = context.Resolve(op.inputs[0]),
                     .y = context.Resolve(op.outputs[0]),
                     .weight = reinterpret_cast<const uint4*>(weight.data),
                     .outputs = static_cast<int32_t>(weight.rows),
                     .depth = static_cast<int32_t>(weight.columns),
                     .activation = params.activation};
  if (op.outputs[0].buffer == context.program().logits.buffer) {
    args.best_draws = context.best_draws();
    args.ungathered = BeforeGather(op.inputs[0], context);
  }
  BindPackedRows(op, context, args);
  if (params.has_bias) args.bias = context.Floats(op.weights[1]);
  if (params.has_residual) args.residual = context.Resolve(op.inputs[1]);
  if (params.norm != NormKind::kNone) {
    const int first = params.has_bias ? 2 : 1;
    args.normed = context.Resolve(op.outputs[1]);
    args.norm = {.kind = params.norm,
                 .epsilon = params.norm_epsilon,
                 .inverse_width = 1.0f / static_cast<float>(args.depth),
                 .weight = context.Floats(op.weights[first])};
    if (params.norm == NormKind::kLayer) args.norm.bias = context.Floats(op.weights[first + 1]);
  }
  return BoundLaunch{op.id, ChooseMmaLinear(args.x.dtype, args.y.dtype), context.Keep(args)};
}

// A norm, then a linear.
struct NormedLinear {
  BoundLaunch norm;
  BoundLaunch linear;
};

void LaunchNormedLinear(const void* args, const StepState& state, const LaunchContext& context) {
  const NormedLinear& both = ArgsAs<NormedLinear>(args);
  both.norm.launch(both.norm.args, state, context);
  both.linear.launch(both.linear.args, state, context);
}

Result<BoundLaunch> BindNormedLinear(const OpRecord& op, BindContext& context) {
  LinearParams params = op.params.As<LinearParams>();
  const OpRecord norm = NormOf(op, params);
  OpRecord linear{.id = op.id, .outputs = {op.outputs[0]}, .weights = {op.weights[0]}};
  if (params.has_bias) linear.weights.Add(op.weights[1]);
  params.norm = NormKind::kNone;
  linear.params = OpParams::Of(params);
  linear.inputs.Add(op.outputs[1]);
  for (int i = 1; i < op.inputs.size(); ++i) linear.inputs.Add(op.inputs[i]);
  NormedLinear both;
  SPRY_ASSIGN_OR_RETURN(both.norm, norm.id == OpId::kLayerNorm ? BindLayerNorm(norm, context)
                                                               : BindRmsNorm(norm, context));
  SPRY_ASSIGN_OR_RETURN(both.linear, BindLinear(linear, context));
  return BoundLaunch{op.id, LaunchNormedLinear, context.Keep(both)};
}

}  // namespace

bool TakesLogits(int64_t depth, bool warpgroups) {
  return warpgroups && ServesLogits<LogitShape<32>>(static_cast<int32_t>(depth));
}

int32_t MostDrawnRows(int64_t depth, bool warpgroups) {
  return TakesLogits(depth, warpgroups) ? std::numeric_limits<int32_t>::max() : kMaxFewRows;
}

Result<BoundLaunch> BindLinear(const OpRecord& op, BindContext& context) {
  const LinearParams params = op.params.As<LinearParams>();
  const WeightMatrix matrix = context.Weight(op.weights[0]);
  const bool wide_norm = params.norm != NormKind::kNone && matrix.columns > kMaxNormWidth;
  if (matrix.tiled && !wide_norm) return BindMma(op, context);
  if (params.norm != NormKind::kNone) return BindNormedLinear(op, context);
  LinearArgs args{.x = context.Resolve(op.inputs[0]),
                  .y = context.Resolve(op.outputs[0]),
                  .weight = context.Weight(op.weights[0]),
                  .activation = params.activation};
  if (params.has_bias) args.bias = context.Floats(op.weights[1]);
  if (params.has_residual) args.residual = context.Resolve(op.inputs[1]);
  CHECK(args.weight.dtype == args.x.dtype);
  CHECK(!params.has_residual || args.residual.dtype == args.y.dtype);
  // y is the activation dtype, or f32 for logits.
  const LaunchFn launch = ForDType(args.x.dtype, [&args]<typename T>(ElementOf<T>) -> LaunchFn {
    if (args.y.dtype == args.x.dtype) return Launch<T, T>;
    CHECK(args.y.dtype == DType::kF32);
    return Launch<T, float>;
  });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace spry::cuda
