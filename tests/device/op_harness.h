// What tests of kernels stand on, whatever the device: weights whose values are known in double,
// steps written by hand, and the targets (a kernel table, later a card) that the same cases run on.
//
// Inputs reach an op through embed: token id t brings row t of an f32 table, and the op's operands
// are columns of it. So a case needs nothing from a target but to run Programs and to read a tensor
// back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "program/program.h"
#include "program/tracer.h"

namespace spry::testing {

// Reproducible numbers without the library's distributions, which differ between libraries.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  int64_t Below(int64_t bound) { return static_cast<int64_t>(Next() % bound); }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // [0, 1)
  float Between(float low, float high) {
    return low + static_cast<float>(Uniform()) * (high - low);
  }

 private:
  uint64_t state_;
};

struct TestWeight {
  WeightHandle handle;
  std::vector<double> values;  // row-major, what the stored bytes mean
};

// Values of about [-scale, scale], stored as `dtype`.
TestWeight RandomWeight(std::string name, DType dtype, const Shape& shape, float scale,
                        uint64_t seed);
TestWeight FloatWeight(std::string name, const Shape& shape, std::vector<float> values);
// A linear with it copies its input exactly.
TestWeight IdentityWeight(int64_t width);

// ---- steps ----

// Fills a slot. Nothing here is checked: a test may write what a scheduler would not.
class StepWriter {
 public:
  StepWriter(const StepSlot& slot, StepId step);

  void Join(int row, const RowParams& params, int num_outputs = 0);
  void WriteBlock(int row, int index, int block);
  // Tokens of a prompt from position `start` on; the last one's logits are sampled if asked.
  void Prefill(int row, std::span<const int32_t> ids, int start, bool sample);
  // The logits of the last `num_samples` tokens judge the token after each; behind the last one
  // comes `next`, or (-1) a token is chosen.
  void Judge(int row, std::span<const int32_t> ids, int start, int num_samples, int32_t next);
  void Decode(int row);

 private:
  void AddRow(const SlotRow& row);
  StepSlot slot_;
};

// ---- targets ----

class TestExecutable {
 public:
  virtual ~TestExecutable() = default;
  virtual Executable& executable() = 0;
  // The first `rows` rows of a tensor that nothing has overwritten, as f32.
  virtual std::vector<float> Read(const Tensor& tensor, int64_t rows) = 0;

  // Launches step after step, each until its results are there.
  const StepResult& RunStep(const std::function<void(StepWriter&)>& fill);
  StepId next_step() const { return next_step_; }

 private:
  StepId next_step_{0};
};

// A row's result and the log-probabilities of its sample.
struct SampledResult : RowResult {
  TokenLogprobs logprobs;
};
// Of a step of `rows` rows with one sample each.
std::vector<SampledResult> SampledResults(const StepResult& result, int rows);

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string name() const = 0;
  virtual DType ActivationDType(DType compute) const = 0;
  // Whether activations become 8 bits before a product with a quantised weight.
  virtual bool QuantizesActivations() const = 0;
  // `program` must outlive the result.
  virtual std::unique_ptr<TestExecutable> Compile(const Program& program,
                                                  const StepLimits& limits) const = 0;
};

// ---- ops that treat each row alone ----

struct InputToken {
  int32_t id = 0;
  int32_t position = 0;
};

struct ExpectedValue {
  double value = 0.0;
  double magnitude = 0.0;  // of the terms that rounding errors scale with
};

struct RowOpCase {
  std::string name;
  DType compute = DType::kF32;
  std::vector<int64_t> input_widths;
  // Traces the op over the inputs [T, width] and returns its output.
  std::function<Tensor(Tracer&, std::span<const Tensor>)> build;
  // The output row of a token in double; `inputs` are its columns one after another.
  std::function<std::vector<ExpectedValue>(std::span<const double> inputs, InputToken token)>
      expect;
  double max_error = 8.0;  // in units of 2^-24 of the magnitude
  // A product with a quantised weight: kernels may quantise the activations too.
  bool quantized = false;
};

std::vector<RowOpCase> RowOpCases();

inline constexpr int kRowOpTokens = 512;        // of the largest step
inline constexpr int kRowOpPositions = 64;      // positions go from 0 to below this
inline constexpr int64_t kRowOpTableRows = 97;  // ids go from 0 to below this

// One case compiled for one target.
class RowOpRunner {
 public:
  RowOpRunner(const RowOpCase& op_case, const Target& target, bool fuse = true);

  // The output rows of a step with these tokens, each a request of its own.
  std::vector<float> Run(std::span<const InputToken> tokens);
  int64_t output_width() const { return output_.width; }
  std::vector<double> Inputs(int32_t id) const;

 private:
  TestWeight table_;
  std::unique_ptr<Program> program_;
  Tensor output_;
  std::unique_ptr<TestExecutable> executable_;
};

}  // namespace spry::testing
