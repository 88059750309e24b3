#include "device/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "device/cpu/cpu_executable.h"
#include "device/cpu/machine.h"
#include "ops/attention/attention.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/sampling.h"
#include "tests/device/op_harness.h"
#include "tests/device/tiny_model.h"

namespace spry::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Device> MakeDevice(int threads) {
  return *MakeCpuDevice({.threads = threads, .isa = CpuIsa::kReference});
}

TEST(CpuDevice, SaysWhatItIs) {
  const auto device = MakeDevice(/*threads=*/2);
  EXPECT_EQ(device->name(), "cpu");
  EXPECT_EQ(device->info().description, "2 threads, reference kernels");
  EXPECT_GT(device->info().free_memory_bytes, 0);
  EXPECT_LE(device->info().free_memory_bytes, device->info().memory_bytes);
  EXPECT_EQ(device->ActivationDType(DType::kBF16), DType::kF32);
  EXPECT_EQ(device->attention_backends().back().name, "cpu-reference");
}

TEST(CpuDevice, ThreadsAreBounded) {
  EXPECT_EQ(MakeCpuDevice({.threads = -1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(MakeCpuDevice({.threads = 5000}).status().message(),
              HasSubstr("--threads is 5000; it must be from 1 to 1024"));
  EXPECT_TRUE(MakeCpuDevice({}).ok());  // the machine's own number
}

TEST(CpuDevice, PlanAddsUp) {
  const auto device = MakeDevice(/*threads=*/2);
  const TinyModel model(/*seed=*/1);
  const Program program = model.Trace(DType::kF32);
  CompileOptions options{.limits = TinyLimits({})};
  const Result<MemoryNeeds> needs = device->Plan(program, options);
  ASSERT_TRUE(needs.ok());
  EXPECT_EQ(needs->kv_per_block, TinyModel::kLayers * options.limits.block_size * 2 *
                                     TinyModel::kKvHeads * TinyModel::kHeadDim * 4);
  constexpr int64_t kPerLayer =
      TinyModel::kHidden *
      (2 + 2 * TinyModel::kHeads * TinyModel::kHeadDim +
       2 * TinyModel::kKvHeads * TinyModel::kHeadDim + 3 * TinyModel::kFeedForward);
  constexpr int64_t kElements = TinyModel::kLayers * kPerLayer +
                                TinyModel::kHidden * (1 + 2 * TinyModel::kVocab) +
                                TinyModel::kMaxLength * TinyModel::kHeadDim;  // one rope table
  EXPECT_EQ(needs->weights, kElements * 4);
  EXPECT_GE(needs->activations, 2 * kWorkerScratchBytes);
  EXPECT_GT(needs->step, 0);
}

// Packed weights take what their form takes: f32 when that is computed in, and of the K types a
// little more than the file.
TEST(CpuDevice, PlanCountsPackedForms) {
  struct Case {
    DType dtype, compute;
    int64_t row_bytes;  // of 512 elements
  };
  for (const Case& c :
       {Case{DType::kQ4_0, DType::kBF16, 16 * 18}, Case{DType::kQ4_0, DType::kF32, 512 * 4},
        Case{DType::kQ4_K, DType::kBF16, 2 * (128 + 8 + 8 + 4)},
        Case{DType::kQ6_K, DType::kBF16, 2 * 210}, Case{DType::kF32, DType::kBF16, 512 * 2}}) {
    const TestWeight weight = RandomWeight("w", c.dtype, Shape{96, 512}, 1.0f, 1);
    Tracer tracer("plan", {.compute = c.compute});
    const Tensor x = tracer.NewBuffer("x", RowDim::kTokens, 512, DType::kF32);
    Linear(tracer, x, {&weight.handle, 1}, {}, {});
    const Result<Program> program = tracer.Finish(1);
    ASSERT_TRUE(program.ok()) << program.status().message();
    const std::unique_ptr<Device> device = *MakeCpuDevice({.threads = 1});
    const Result<MemoryNeeds> needs = device->Plan(*program, {.limits = TinyLimits({})});
    ASSERT_TRUE(needs.ok()) << needs.status().message();
    EXPECT_EQ(needs->weights, 96 * c.row_bytes) << Traits(c.dtype).name;
  }
}

TEST(CpuDevice, CompileReportsProgress) {
  const auto device = MakeDevice(/*threads=*/1);
  const TinyModel model(/*seed=*/1);
  const Program program = model.Trace(DType::kF32);
  int64_t last_done = 0, last_total = 0;
  const auto progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last_done);
    last_done = done;
    last_total = total;
  };
  ASSERT_TRUE(device->Compile(program, {.limits = TinyLimits({}), .progress = progress}).ok());
  EXPECT_GT(last_total, 0);
  EXPECT_EQ(last_done, last_total);
}

TEST(CpuDevice, CompileRefuses) {
  const auto device = MakeDevice(/*threads=*/1);
  const TinyModel model(/*seed=*/1);
  const Program program = model.Trace(DType::kF32);
  CompileOptions options{.limits = TinyLimits({}), .attention_backend = "flash"};
  EXPECT_THAT(device->Compile(program, options).status().message(), HasSubstr("\"flash\""));
  options = {.limits = TinyLimits({})};
  options.limits.block_size = 24;
  EXPECT_THAT(device->Compile(program, options).status().message(), HasSubstr("block size is 24"));
  options = {.limits = TinyLimits({})};
  options.limits.num_blocks = std::numeric_limits<int32_t>::max();
  options.limits.block_size = 256;
  const Status too_large = device->Compile(program, options).status();
  EXPECT_EQ(too_large.code(), StatusCode::kResourceExhausted) << too_large.message();
}

// What a checkpoint gets wrong ends in an error that names the weight.
TEST(CpuDevice, BadWeightsAreNamed) {
  const auto device = MakeDevice(/*threads=*/1);
  const TestWeight good = RandomWeight("good", DType::kF32, Shape{5, 32}, 1.0f, 1);
  const auto compile = [&](const WeightHandle& weight) {
    Tracer tracer("bad", {});
    SampleAndAdvance(tracer, GatherSamples(tracer, Linear(tracer, Embed(tracer, good.handle),
                                                          {&weight, 1}, {}, {})));
    const Program program = *tracer.Finish(5);
    return device->Compile(program, {.limits = TinyLimits({})}).status();
  };
  WeightHandle weight = good.handle;
  weight.name = "culprit";
  ASSERT_TRUE(compile(weight).ok());
  weight.read = [] { return Result<HostTensor>(NotFound("culprit is gone")); };
  EXPECT_EQ(compile(weight).code(), StatusCode::kNotFound);
  weight.read = [&] {
    Result<HostTensor> tensor = good.handle.read();
    tensor->data = tensor->data.first(tensor->data.size() - 4);
    return tensor;
  };
  EXPECT_THAT(compile(weight).message(), HasSubstr("culprit float32 [5, 32] has 636 bytes"));
  weight.read = [&] {
    Result<HostTensor> tensor = good.handle.read();
    tensor->dtype = DType::kI32;
    return tensor;
  };
  EXPECT_THAT(compile(weight).message(), HasSubstr("reads as int32"));
  weight.dtype = DType::kI32;
  EXPECT_THAT(compile(weight).message(), HasSubstr("no weight type"));
}

}  // namespace
}  // namespace spry::testing
