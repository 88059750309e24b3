// Runs one linear op outside a device: makes weights, traces and binds the op, and feeds it rows.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/cpu/machine.h"
#include "device/cpu/simd/linear.h"
#include "ops/fusion.h"
#include "ops/linear.h"
#include "tensor/dequantize.h"
#include "tensor/float16.h"
#include "tests/support/random_blocks.h"

namespace spry {

struct Part {
  DType dtype = DType::kF32;
  int64_t rows = 0;
};

struct LinearSpec {
  std::vector<Part> parts;
  int64_t k = 0;
  DType compute = DType::kBF16;
  bool bias = false;
  bool residual = false;
  Activation activation = Activation::kNone;
  bool gated = false;

  int64_t n() const {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.rows;
    return rows;
  }
};

// Normal values, quantised blocks with scales of their own and every quant, the extreme ones too.
inline std::vector<std::byte> RandomWeight(DType dtype, int64_t elements, std::mt19937& random) {
  const DTypeTraits& traits = Traits(dtype);
  std::vector<std::byte> bytes(elements / traits.block_elements * traits.block_bytes);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  for (size_t at = 0; at < bytes.size(); at += traits.block_bytes) {
    if (dtype == DType::kF32) {
      const float value = normal(random);
      std::memcpy(&bytes[at], &value, 4);
    } else if (dtype == DType::kF16 || dtype == DType::kBF16) {
      const float value = normal(random);
      const uint16_t bits = dtype == DType::kF16 ? FloatToF16(value) : FloatToBf16(value);
      std::memcpy(&bytes[at], &bits, 2);
    } else {
      const float scale = normal(random), minimum = normal(random) * 8.0f;
      FillBlock(dtype, scale, minimum, random, &bytes[at]);
    }
  }
  return bytes;
}

inline std::vector<float> RandomRows(int64_t elements, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(elements);
  for (float& value : x) value = normal(random);
  return x;
}

// The weights of a spec, in checkpoint form.
struct LinearWeights {
  std::vector<std::vector<std::byte>> parts;
  std::vector<float> bias;

  LinearWeights(const LinearSpec& spec, uint32_t seed) {
    std::mt19937 random(seed);
    for (const Part& part : spec.parts) {
      parts.push_back(RandomWeight(part.dtype, part.rows * spec.k, random));
    }
    bias = RandomRows(spec.n(), random);
  }
};

inline std::vector<WeightHandle> HandlesOf(const LinearSpec& spec, const LinearWeights& weights) {
  std::vector<WeightHandle> handles;
  for (size_t i = 0; i < spec.parts.size(); ++i) {
    const DType dtype = spec.parts[i].dtype;
    const Shape shape({spec.parts[i].rows, spec.k});
    const std::span<const std::byte> data = weights.parts[i];
    handles.push_back({.name = "part" + std::to_string(i),
                       .dtype = dtype,
                       .shape = shape,
                       .read = [=]() -> Result<HostTensor> {
                         return HostTensor{dtype, shape, data, nullptr};
                       }});
  }
  return handles;
}

using Binder = std::function<Result<BoundCall>(const OpRecord& op, BindContext& context)>;

class LinearRig {
 public:
  static constexpr int32_t kMaxRows = 520;

  LinearRig(const LinearSpec& spec, const LinearWeights& weights, const LinearKernels& kernels,
            int workers)
      : LinearRig(
            spec, weights,
            [&](const OpRecord& op, BindContext& context) {
              return BindLinear(op, context, kernels, Avx2RowKernels());
            },
            workers) {}

  LinearRig(const LinearSpec& spec, const LinearWeights& weights, const Binder& bind, int workers)
      : spec_(spec), pool_(*WorkerPool::Create(workers)) {
    Tracer tracer("rig", {.compute = spec.compute});
    x_ = tracer.NewBuffer("x", RowDim::kTokens, spec.k, DType::kF32);
    const std::vector<WeightHandle> handles = HandlesOf(spec, weights);
    std::vector<WeightHandle> biases;
    const std::span<const std::byte> bias = std::as_bytes(std::span(weights.bias));
    if (spec.bias) {
      biases.push_back(
          {.name = "bias",
           .dtype = DType::kF32,
           .shape = Shape({spec.n()}),
           .read = [=, n = spec.n()] {
             return Result<HostTensor>(HostTensor{DType::kF32, Shape({n}), bias, nullptr});
           }});
    }
    y_ = Linear(tracer, x_, handles, biases, {});
    if (spec.gated) y_ = GatedActivate(tracer, y_, spec.activation);
    residual_ = tracer.NewBuffer("residual", RowDim::kTokens, spec.n(), DType::kF32);
    Result<Program> program = tracer.Finish(1);
    EXPECT_TRUE(program.ok()) << program.status().message();
    program_ = *std::move(program);
    FuseOps(program_, {.gate_into_linear = true});
    OpRecord& op = program_.ops.back();
    LinearParams params = op.params.As<LinearParams>();
    params.activation = spec.activation;
    params.has_residual = spec.residual;
    op.params = OpParams::Of(params);
    op.inputs.Add(residual_);  // the plan then gives it memory of its own
    context_ = *BindContext::Create(
        program_, StepLimits{.max_tokens = kMaxRows, .max_rows = 1, .max_samples = 1}, *pool_);
    Result<BoundCall> call = bind(op, *context_);
    EXPECT_TRUE(call.ok()) << call.status().message();
    call_ = *call;
    EXPECT_TRUE(context_->FinishBinding().ok());
  }

  // y of `rows` rows of x (and of residual, when the spec has one).
  std::vector<float> Run(const float* x, int32_t rows, const float* residual = nullptr) {
    const Matrix x_matrix = context_->Resolve(x_);
    const Matrix y_matrix = context_->Resolve(y_);
    std::memcpy(x_matrix.data, x, rows * spec_.k * sizeof(float));
    if (residual != nullptr) {
      std::memcpy(context_->Resolve(residual_).data, residual, rows * spec_.n() * sizeof(float));
    }
    Launch(rows);
    return {y_matrix.Row(0), y_matrix.Row(rows)};
  }

  void Launch(int32_t rows) {
    StepHeader header{.num_tokens = rows};
    struct Job {
      const BoundCall& call;
      StepState state;
    } job = {call_, {.header = &header}};
    pool_->Run(
        [](const void* context, Worker& worker) {
          const Job& launched = *static_cast<const Job*>(context);
          launched.call.run(launched.call.args, launched.state, worker);
        },
        &job);
  }

  int64_t weight_bytes() const { return context_->weight_bytes(); }

 private:
  LinearSpec spec_;
  std::unique_ptr<WorkerPool> pool_;
  Program program_;
  Tensor x_, y_, residual_;
  std::unique_ptr<BindContext> context_;
  BoundCall call_;
};

// The kernel sets that this machine can run.
struct KernelVariant {
  std::string name;
  LinearKernels kernels;
  bool bf16_products = false;  // of quantised weights: int8 otherwise
};
inline std::vector<KernelVariant> KernelVariants() {
  std::vector<KernelVariant> variants;
  LinearKernels kernels;
  AddAvx2Linear(kernels);
  variants.push_back({"avx2", kernels});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    AddAvx512Linear(kernels);
    variants.push_back({"avx512", kernels});
    const bool vnni = __builtin_cpu_supports("avx512vnni");
    const bool bf16 = __builtin_cpu_supports("avx512bf16");
    if (vnni) AddAvx512VnniLinear(kernels);
    if (bf16) AddAvx512Bf16Linear(kernels);
    if (vnni || bf16) variants.push_back({"avx512_vnni_bf16", kernels});
    if (DetectCpuFeatures().amx) {
      AddAmxLinear(kernels);
      variants.push_back({"amx", kernels, /*bf16_products=*/true});
    }
  }
  return variants;
}

}  // namespace spry
