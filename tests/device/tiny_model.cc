#include "tests/device/tiny_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>

#include "base/check.h"
#include "ops/activation.h"
#include "ops/add.h"
#include "ops/attention/attention.h"
#include "ops/embed.h"
#include "ops/fusion.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/sampling.h"

namespace spry::testing {
namespace {

constexpr NormParams kNorm{.epsilon = 1e-5f};

std::vector<double> RmsNormed(const TestWeight& weight, const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kNorm.epsilon);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight.values[i];
  return y;
}

std::vector<double> Product(const TestWeight& weight, const std::vector<double>& x) {
  std::vector<double> y(weight.values.size() / x.size());
  for (size_t n = 0; n < y.size(); ++n) {
    for (size_t k = 0; k < x.size(); ++k) y[n] += weight.values[n * x.size() + k] * x[k];
  }
  return y;
}

void AddTo(std::vector<double>& x, const std::vector<double>& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

void Rotate(std::vector<double>& heads, int64_t position, std::span<const double> frequencies) {
  constexpr int kHalf = TinyModel::kHeadDim / 2;
  for (size_t head = 0; head < heads.size(); head += TinyModel::kHeadDim) {
    for (int i = 0; i < kHalf; ++i) {
      double &a = heads[head + i], &b = heads[head + i + kHalf];
      const double angle = static_cast<double>(position) * frequencies[i];
      const double rotated = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = rotated;
    }
  }
}

}  // namespace

TinyModel::TinyModel(uint64_t seed) {
  for (int i = 0; i < kHeadDim / 2; ++i) {
    frequencies_.push_back(std::pow(10000.0, -2.0 * i / kHeadDim));
  }
  const auto matrix = [&](const char* name, int64_t n, int64_t k) {
    const float scale = 2.0f / std::sqrt(static_cast<float>(k));
    return RandomWeight(name, DType::kF32, Shape{n, k}, scale, ++seed);
  };
  const auto norm = [&] { return RandomWeight("norm", DType::kF32, Shape{kHidden}, 1.5f, ++seed); };
  embedding_ = matrix("embedding", kVocab, kHidden);
  head_ = matrix("head", kVocab, kHidden);
  final_norm_ = norm();
  for (int i = 0; i < kLayers; ++i) {
    layers_.push_back({.attention_norm = norm(),
                       .q = matrix("q", kHeads * kHeadDim, kHidden),
                       .k = matrix("k", kKvHeads * kHeadDim, kHidden),
                       .v = matrix("v", kKvHeads * kHeadDim, kHidden),
                       .o = matrix("o", kHidden, kHeads * kHeadDim),
                       .feed_forward_norm = norm(),
                       .gate = matrix("gate", kFeedForward, kHidden),
                       .up = matrix("up", kFeedForward, kHidden),
                       .down = matrix("down", kHidden, kFeedForward)});
  }
}

Program TinyModel::Trace(DType activation) const {
  Tracer t("tiny", {.activation = activation, .max_length = kMaxLength});
  const WeightId table = AddRopeTable(t, frequencies_);
  const auto linear = [&t](const Tensor& x, std::initializer_list<WeightHandle> weights) {
    return Linear(t, x, {weights.begin(), weights.size()}, {}, {});
  };
  Tensor x = Embed(t, embedding_.handle);
  for (const Layer& layer : layers_) {
    Tensor y = RmsNorm(t, x, layer.attention_norm.handle, kNorm);
    const Tensor qkv = linear(y, {layer.q.handle, layer.k.handle, layer.v.handle});
    constexpr int64_t kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;
    const Tensor q = qkv.Columns(0, kQ), k = qkv.Columns(kQ, kKv), v = qkv.Columns(kQ + kKv, kKv);
    Rope(t, q, k, table,
         {.num_heads = kHeads,
          .num_kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .rotary_dim = kHeadDim});
    y = Attention(t, q, k, v,
                  {.num_heads = kHeads,
                   .num_kv_heads = kKvHeads,
                   .head_dim = kHeadDim,
                   .v_head_dim = kHeadDim,
                   .scale = 1 / std::sqrt(static_cast<float>(kHeadDim))});
    x = Add(t, linear(y, {layer.o.handle}), x);
    y = RmsNorm(t, x, layer.feed_forward_norm.handle, kNorm);
    y = GatedActivate(t, linear(y, {layer.gate.handle, layer.up.handle}), Activation::kSilu);
    x = Add(t, linear(y, {layer.down.handle}), x);
  }
  x = RmsNorm(t, GatherSamples(t, x), final_norm_.handle, kNorm);
  SampleAndAdvance(t, Linear(t, x, {&head_.handle, 1}, {}, {.name = "logits", .logits = true}));
  Program program = *t.Finish(kVocab);
  FuseOps(program);
  return program;
}

// Of the last token over all of them.
std::vector<double> TinyModel::Attend(const Layer& layer,
                                      const std::vector<std::vector<double>>& normed) const {
  const int64_t last = std::ssize(normed) - 1;
  std::vector<double> q = Product(layer.q, normed.back());
  Rotate(q, last, frequencies_);
  std::vector<double> output(kHeads * kHeadDim), sums(kHeads);
  for (int64_t j = 0; j <= last; ++j) {
    std::vector<double> k = Product(layer.k, normed[j]);
    Rotate(k, j, frequencies_);
    const std::vector<double> v = Product(layer.v, normed[j]);
    for (int head = 0; head < kHeads; ++head) {
      const int kv_head = head / (kHeads / kKvHeads);
      double score = 0;
      for (int d = 0; d < kHeadDim; ++d)
        score += q[head * kHeadDim + d] * k[kv_head * kHeadDim + d];
      const double weight = std::exp(score / std::sqrt(static_cast<double>(kHeadDim)));
      sums[head] += weight;
      for (int d = 0; d < kHeadDim; ++d) {
        output[head * kHeadDim + d] += weight * v[kv_head * kHeadDim + d];
      }
    }
  }
  for (size_t i = 0; i < output.size(); ++i) output[i] /= sums[i / kHeadDim];
  return output;
}

std::vector<double> TinyModel::Logits(std::span<const int32_t> ids) const {
  std::vector<std::vector<double>> xs;
  for (const int32_t id : ids) {
    const auto row = embedding_.values.begin() + id * kHidden;
    xs.emplace_back(row, row + kHidden);
  }
  for (const Layer& layer : layers_) {
    std::vector<std::vector<double>> normed;
    for (size_t t = 0; t < xs.size(); ++t) {
      normed.push_back(RmsNormed(layer.attention_norm, xs[t]));
      AddTo(xs[t], Product(layer.o, Attend(layer, normed)));
    }
    for (std::vector<double>& x : xs) {
      const std::vector<double> y = RmsNormed(layer.feed_forward_norm, x);
      std::vector<double> gate = Product(layer.gate, y);
      const std::vector<double> up = Product(layer.up, y);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      AddTo(x, Product(layer.down, gate));
    }
  }
  return Product(head_, RmsNormed(final_norm_, xs.back()));
}

StepLimits TinyLimits(const TinySchedule& schedule) {
  const int blocks = TinyModel::kMaxLength / schedule.block_size;
  return {.max_tokens = 256,
          .max_rows = schedule.max_rows,
          .max_samples = schedule.max_rows,
          .max_blocks_per_row = blocks,
          .max_block_writes = blocks * schedule.max_rows,
          .block_size = schedule.block_size,
          .num_blocks = blocks * schedule.max_rows,
          .ring_size = schedule.ring_size};
}

void WriteTinyBlocks(StepWriter& step, int row, const StepLimits& limits) {
  const int blocks = limits.max_blocks_per_row;
  for (int i = 0; i < blocks; ++i) step.WriteBlock(row, i, row * blocks + i);
}

namespace {

// The engine's part of the protocol, for requests that all fit their blocks.
class TinyHost {
 public:
  TinyHost(Executable& executable, std::span<const TinyRequest> requests,
           const TinySchedule& schedule)
      : executable_(executable),
        requests_(requests),
        schedule_(schedule),
        limits_(TinyLimits(schedule)),
        results_(requests.size()),
        rows_(schedule.max_rows) {}

  std::vector<TinyResult> Run() {
    while (done_ < requests_.size() || !in_flight_.empty()) {
      if (static_cast<int>(in_flight_.size()) < schedule_.depth && Launch()) continue;
      Commit();
    }
    return std::move(results_);
  }

 private:
  struct Row {
    int request = -1;
    int prompt_done = 0;
  };
  struct InFlight {
    StepId step;
    std::vector<int> requests;  // of the step's rows
  };

  // False when there is nothing to do until results come.
  bool Launch() {
    const StepId step(launched_);
    StepWriter writer(executable_.Slot(step), step);
    InFlight in_flight{.step = step};
    for (int i = 0; i < schedule_.max_rows; ++i) {
      Row& row = rows_[i];
      if (row.request < 0 && next_request_ < requests_.size()) {
        row = {.request = static_cast<int>(next_request_++)};
        writer.Join(i, requests_[row.request].params);
        WriteTinyBlocks(writer, i, limits_);
      }
      if (row.request < 0) continue;
      const std::span<const int32_t> prompt = requests_[row.request].prompt;
      const int left = static_cast<int>(prompt.size()) - row.prompt_done;
      if (left == 0) {
        writer.Decode(i);
      } else {
        const int count = std::min(left, schedule_.chunk);
        writer.Prefill(i, prompt.subspan(row.prompt_done, count), row.prompt_done, count == left);
        row.prompt_done += count;
      }
      in_flight.requests.push_back(row.request);
    }
    if (in_flight.requests.empty()) return false;
    EXPECT_TRUE(executable_.Launch(step).ok());
    in_flight_.push_back(std::move(in_flight));
    ++launched_;
    return true;
  }

  void Commit() {
    const InFlight in_flight = std::move(in_flight_.front());
    in_flight_.pop_front();
    const Result<const StepResult*> result = executable_.Poll(in_flight.step);
    CHECK(result.ok() && *result != nullptr);
    for (size_t r = 0; r < in_flight.requests.size(); ++r) {
      const RowResult& row = (*result)->rows[r];
      TinyResult& tiny = results_[in_flight.requests[r]];
      if (tiny.finish != FinishReason::kNone) {
        EXPECT_EQ(row.count, 0);
        EXPECT_EQ(row.finish, FinishReason::kNone);
        continue;
      }
      for (int i = 0; i < row.count; ++i) tiny.tokens.push_back(row.tokens[i].value());
      tiny.finish = row.finish;
      if (row.finish == FinishReason::kNone) continue;
      ++done_;
      for (Row& host_row : rows_) {
        if (host_row.request == in_flight.requests[r]) host_row = {};
      }
    }
  }

  Executable& executable_;
  std::span<const TinyRequest> requests_;
  TinySchedule schedule_;
  StepLimits limits_;
  std::vector<TinyResult> results_;
  std::vector<Row> rows_;
  std::deque<InFlight> in_flight_;
  size_t next_request_ = 0;
  size_t done_ = 0;
  uint64_t launched_ = 0;
};

}  // namespace

std::vector<TinyResult> RunTinyRequests(const TinyModel& model, const Target& target,
                                        std::span<const TinyRequest> requests,
                                        const TinySchedule& schedule) {
  const Program program = model.Trace(target.ActivationDType(DType::kF32));
  const auto executable = target.Compile(program, TinyLimits(schedule));
  return TinyHost(executable->executable(), requests, schedule).Run();
}

}  // namespace spry::testing
