// A whole model on the CPU device: right against double, and one answer per request whatever the
// schedule, the run-ahead or the threads.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "base/allocation_counter.h"
#include "tests/device/cpu_targets.h"
#include "tests/device/tiny_model.h"

namespace spry::testing {
namespace {

constexpr uint64_t kModelSeed = 1000;

std::vector<int32_t> SomeIds(int count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(TinyModel::kVocab));
  return ids;
}

// Prompts and outputs of many lengths; greedy, drawing, with stop ids and with logprobs.
std::vector<TinyRequest> SomeRequests() {
  std::vector<TinyRequest> requests;
  for (int i = 0; i < 11; ++i) {
    TinyRequest request{.prompt = SomeIds(1 + i * i % 37, 100 + i),
                        .params = {.max_outputs = 1 + i * 5 % 23}};
    if (i % 2 == 1) request.params.temperature = 0.8f;
    if (i % 3 == 1) request.params.top_p = 0.9f;
    request.params.seed = 7 * i;
    if (i % 4 == 2) {
      request.params.num_stop_ids = 8;
      for (int s = 0; s < 8; ++s) request.params.stop_ids[s] = TokenId(s * 7);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(Executable, LogitsAgreeWithDouble) {
  const TinyModel model(kModelSeed);
  for (const auto& target : CpuTargets(/*threads=*/2)) {
    const Program program = model.Trace(target->ActivationDType(DType::kF32));
    const StepLimits limits = TinyLimits({});
    const auto executable = target->Compile(program, limits);
    const std::vector<int32_t> a = SomeIds(37, 1), b = SomeIds(5, 2);
    executable->RunStep([&](StepWriter& step) {
      for (const int row : {0, 1}) {
        step.Join(row, {.max_outputs = 9});
        WriteTinyBlocks(step, row, limits);
        step.Prefill(row, row == 0 ? a : b, 0, /*sample=*/true);
      }
    });
    std::vector<float> logits(2 * TinyModel::kVocab);
    ASSERT_TRUE(executable->executable().CopyLogits(logits).ok());
    for (const int row : {0, 1}) {
      const std::vector<double> expected = model.Logits(row == 0 ? a : b);
      for (int i = 0; i < TinyModel::kVocab; ++i) {
        EXPECT_NEAR(logits[row * TinyModel::kVocab + i], expected[i], 2e-4) << target->name();
      }
    }
    std::vector<float> wrong_size(3);
    EXPECT_EQ(executable->executable().CopyLogits(wrong_size).code(), StatusCode::kInvalidArgument);
  }
}

// Each request alone, one step at a time.
std::vector<TinyResult> RunEachAlone(const TinyModel& model, const Target& target,
                                     std::span<const TinyRequest> requests) {
  std::vector<TinyResult> results;
  for (const TinyRequest& request : requests) {
    results.push_back(RunTinyRequests(model, target, {&request, 1}, {}).front());
  }
  return results;
}

TEST(Executable, SchedulesDoNotChangeAnswers) {
  const TinyModel model(kModelSeed);
  const std::vector<TinyRequest> requests = SomeRequests();
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    const std::vector<TinyResult> expected = RunEachAlone(model, *target, requests);
    int stopped = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      stopped += expected[i].finish == FinishReason::kStop;
      if (expected[i].finish == FinishReason::kLength) {
        EXPECT_EQ(std::ssize(expected[i].tokens), requests[i].params.max_outputs);
      }
    }
    EXPECT_GT(stopped, 0);
    for (const int rows : {1, 4, 11}) {
      for (const int chunk : {1, 7, 1000}) {
        for (const int block_size : {8, 64}) {
          const TinySchedule schedule{.max_rows = rows, .chunk = chunk, .block_size = block_size};
          EXPECT_EQ(RunTinyRequests(model, *target, requests, schedule), expected)
              << target->name() << ", " << rows << " rows, chunks of " << chunk;
        }
      }
    }
  }
}

TEST(Executable, RunAheadDoesNotChangeAnswers) {
  const TinyModel model(kModelSeed);
  const std::vector<TinyRequest> requests = SomeRequests();
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    const std::vector<TinyResult> expected = RunEachAlone(model, *target, requests);
    for (const int ring_size : {2, 3, 9}) {
      for (int depth = 1; depth < ring_size; ++depth) {
        const TinySchedule schedule{
            .ring_size = ring_size, .depth = depth, .max_rows = 3, .chunk = 5};
        EXPECT_EQ(RunTinyRequests(model, *target, requests, schedule), expected)
            << target->name() << ", ring of " << ring_size << ", depth " << depth;
      }
    }
  }
}

TEST(Executable, ThreadsDoNotChangeAnswers) {
  const TinyModel model(kModelSeed);
  const std::vector<TinyRequest> requests = SomeRequests();
  const auto one = CpuTargets(/*threads=*/1);
  for (const int threads : {2, 3}) {
    const auto several = CpuTargets(threads);
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(RunTinyRequests(model, *several[i], requests, {}),
                RunTinyRequests(model, *one[i], requests, {}))
          << several[i]->name();
    }
  }
}

// A row that finished writes nothing and says nothing until it joins again, and then starts clean.
TEST(Executable, FinishedRowsArePadding) {
  const TinyModel model(kModelSeed);
  const CpuTarget target = ReferenceTarget(/*threads=*/2);
  const Program program = model.Trace(DType::kF32);
  const StepLimits limits = TinyLimits({.ring_size = 9});
  const auto executable = target.CompileCpu(program, limits);
  const std::vector<int32_t> prompt = SomeIds(10, 3);
  uint64_t next = 0;
  const auto run = [&](auto fill) {
    const StepId step(next++);
    StepWriter writer(executable->Slot(step), step);
    fill(writer);
    EXPECT_TRUE(executable->Launch(step).ok());
    return (*executable->Poll(step))->rows[0];
  };
  const auto start = [&](StepWriter& step) {
    step.Join(0, {.max_outputs = 2});
    WriteTinyBlocks(step, 0, limits);
    step.Prefill(0, prompt, 0, /*sample=*/true);
  };
  const auto decode = [](StepWriter& step) { step.Decode(0); };
  const RowResult first = run(start), second = run(decode);
  EXPECT_EQ(second.finish, FinishReason::kLength);
  const int64_t layer_bytes = int64_t{limits.num_blocks} * limits.block_size * 2 *
                              TinyModel::kKvHeads * TinyModel::kHeadDim * 4;
  std::vector<std::vector<std::byte>> kv;
  for (int i = 0; i < TinyModel::kLayers; ++i) {
    const std::byte* layer = executable->kv_layer(LayerIdx(i));
    kv.emplace_back(layer, layer + layer_bytes);
  }
  const RowState state = executable->state().row_states[0];
  for (int i = 0; i < 3; ++i) {
    const RowResult silent = run(decode);
    EXPECT_EQ(silent.count, 0);
    EXPECT_EQ(silent.finish, FinishReason::kNone);
  }
  for (int i = 0; i < TinyModel::kLayers; ++i) {
    EXPECT_EQ(0, std::memcmp(executable->kv_layer(LayerIdx(i)), kv[i].data(), layer_bytes));
  }
  EXPECT_EQ(executable->state().row_states[0].length, state.length);
  EXPECT_EQ(executable->state().row_states[0].num_outputs, state.num_outputs);
  EXPECT_EQ(run(start).tokens[0], first.tokens[0]);
  EXPECT_EQ(run(decode).tokens[0], second.tokens[0]);
}

TEST(Executable, ASteadyStepAllocatesNothing) {
  const TinyModel model(kModelSeed);
  for (const auto& target : CpuTargets(/*threads=*/3)) {
    const Program program = model.Trace(target->ActivationDType(DType::kF32));
    const StepLimits limits = TinyLimits({});
    const auto executable = target->Compile(program, limits);
    RowParams params{.temperature = 1.0f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 20};
    params.max_outputs = 1000;
    params.num_logprobs = 5;
    const std::vector<int32_t> prompt = SomeIds(20, 4);
    const std::function<void(StepWriter&)> join = [&](StepWriter& step) {
      for (const int row : {0, 1}) {
        step.Join(row, params);
        WriteTinyBlocks(step, row, limits);
        step.Prefill(row, prompt, 0, /*sample=*/true);
      }
    };
    const std::function<void(StepWriter&)> decode = [](StepWriter& step) {
      step.Decode(0);
      step.Decode(1);
    };
    executable->RunStep(join);
    const uint64_t before = ProcessAllocations();
    for (int i = 0; i < 10; ++i) executable->RunStep(decode);
    executable->RunStep(join);
    EXPECT_EQ(ProcessAllocations(), before) << target->name();
  }
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

TEST(Executable, UnusedBlocksTakeNoMemory) {
  const TinyModel model(kModelSeed);
  const CpuTarget target = ReferenceTarget(/*threads=*/1);
  const Program program = model.Trace(DType::kF32);
  StepLimits limits = TinyLimits({});
  limits.num_blocks = 1 << 20;  // 4 GiB over the two layers
  const int64_t before = ResidentBytes();
  const auto executable = target.CompileCpu(program, limits);
  EXPECT_LT(ResidentBytes() - before, int64_t{200} << 20);
}

}  // namespace
}  // namespace spry::testing
