#include <cmath>

#include "device/cpu/reference/kernels.h"
#include "device/cpu/reference/lanes.h"
#include "ops/norm.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix x, y;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float epsilon = 0.0f;
};

// Sums in lanes; squares by fmaf; y = fmaf((x - mean) * inverse, weight, bias).
void LayerNormRow(const Args& args, const float* x, float* y) {
  const int64_t width = args.x.width;
  const float count = static_cast<float>(width);
  const float mean = SumInLanes(width, [x](int64_t i, float sum) { return sum + x[i]; }) / count;
  const float variance = SumInLanes(width,
                                    [x, mean](int64_t i, float sum) {
                                      const float d = x[i] - mean;
                                      return fmaf(d, d, sum);
                                    }) /
                         count;
  const float inverse = 1.0f / sqrtf(variance + args.epsilon);
  for (int64_t i = 0; i < width; ++i) {
    y[i] = fmaf((x[i] - mean) * inverse, args.weight[i], args.bias[i]);
  }
}

// Sum of squares in lanes by fmaf; y = (x * inverse) * weight.
void RmsNormRow(const Args& args, const float* x, float* y) {
  const int64_t width = args.x.width;
  const float squares =
      SumInLanes(width, [x](int64_t i, float sum) { return fmaf(x[i], x[i], sum); });
  const float inverse = 1.0f / sqrtf(squares / static_cast<float>(width) + args.epsilon);
  for (int64_t i = 0; i < width; ++i) y[i] = x[i] * inverse * args.weight[i];
}

template <void (*kNormRow)(const Args&, const float*, float*)>
void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const Share share = ShareOf(NumRows(args.x.rows, state), worker);
  for (int64_t r = share.begin; r < share.end; ++r) kNormRow(args, args.x.Row(r), args.y.Row(r));
}

}  // namespace

Result<BoundCall> BindLayerNorm(const OpRecord& op, BindContext& context) {
  Args args{.x = context.Resolve(op.inputs[0]),
            .y = context.Resolve(op.outputs[0]),
            .epsilon = op.params.As<NormParams>().epsilon};
  SPRY_ASSIGN_OR_RETURN(args.weight, context.LoadFloats(op.weights[0]));
  SPRY_ASSIGN_OR_RETURN(args.bias, context.LoadFloats(op.weights[1]));
  return BoundCall{.op = op.id, .run = Run<LayerNormRow>, .args = context.Keep(args)};
}

Result<BoundCall> BindRmsNorm(const OpRecord& op, BindContext& context) {
  Args args{.x = context.Resolve(op.inputs[0]),
            .y = context.Resolve(op.outputs[0]),
            .epsilon = op.params.As<NormParams>().epsilon};
  SPRY_ASSIGN_OR_RETURN(args.weight, context.LoadFloats(op.weights[0]));
  return BoundCall{.op = op.id, .run = Run<RmsNormRow>, .args = context.Keep(args)};
}

}  // namespace spry::reference
