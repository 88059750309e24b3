#include <fmt/format.h>

#include "base/clock.h"
#include "ops/attention/attention.h"
#include "ops/embed.h"
#include "ops/sampling.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"

namespace spry::testing {
namespace {

constexpr int kVocab = 64;

Program TraceTable(const TestWeight& table) {
  Tracer tracer("table", {.max_length = 16});
  SampleAndAdvance(tracer, GatherSamples(tracer, Embed(tracer, table.handle)));
  return *tracer.Finish(kVocab);
}

Program TraceAttention(const TestWeight& table) {
  Tracer tracer("attention", {.max_length = 16});
  const Tensor x = Embed(tracer, table.handle);
  const Tensor out =
      Attention(tracer, x, x, x,
                {.num_heads = 1, .num_kv_heads = 1, .head_dim = kVocab, .v_head_dim = kVocab});
  SampleAndAdvance(tracer, GatherSamples(tracer, out));
  return *tracer.Finish(kVocab);
}

StepLimits SmallLimits() {
  return {
      .max_tokens = 4, .max_rows = 4, .max_samples = 4, .max_blocks_per_row = 1, .num_blocks = 1};
}

// Launches one token and polls until there is a result or an error, at most ten seconds.
Status RunToken(Executable& executable, StepId step, int32_t token) {
  StepWriter writer(executable.Slot(step), step);
  writer.Join(0, {});
  writer.Prefill(0, {&token, 1}, /*start=*/0, /*sample=*/true);
  SPRY_RETURN_IF_ERROR(executable.Launch(step));
  constexpr int64_t kPatienceNanos = 10'000'000'000;
  const SteadyClock clock;
  const int64_t begin = clock.NowNanos();
  while (clock.NowNanos() - begin < kPatienceNanos) {
    SPRY_ASSIGN_OR_RETURN(const StepResult* result, executable.Poll(step));
    if (result != nullptr) return {};
  }
  return Unavailable("no answer in ten seconds");
}

void ExpectCode(Report& report, const std::string& name, const Status& status, StatusCode code) {
  report.Expect(status.code() == code, name, status.ok() ? "no error" : status.message());
}

}  // namespace

void CheckFaults(Report& report, const CheckOptions&) {
  const auto device = *LoadCuda({.mode = GraphMode::kFull});
  const TestWeight table = RandomWeight("table", DType::kF32, Shape{kVocab, kVocab}, 1.0f, 1);
  const Program attention = TraceAttention(table);
  StepLimits huge = SmallLimits();
  huge.num_blocks = 1 << 30;
  ExpectCode(report, "a KV pool larger than the card",
             device->Compile(attention, {.limits = huge}).status(), StatusCode::kResourceExhausted);
  ExpectCode(
      report, "an attention backend that is not there",
      device->Compile(attention, {.limits = SmallLimits(), .attention_backend = "none"}).status(),
      StatusCode::kNotFound);
  const Program program = TraceTable(table);
  const auto executable = *device->Compile(program, {.limits = SmallLimits()});
  ExpectCode(report, "after these, a step", RunToken(*executable, StepId(0), 5), StatusCode::kOk);
  constexpr int32_t kFarOutside = 1 << 30;
  ExpectCode(report, "a fault on the card", RunToken(*executable, StepId(1), kFarOutside),
             StatusCode::kInternal);
  ExpectCode(report, "the step after it", RunToken(*executable, StepId(2), 5),
             StatusCode::kInternal);
}

}  // namespace spry::testing
