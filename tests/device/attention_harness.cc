#include "tests/device/attention_harness.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "tensor/float16.h"
#include "tests/device/tile_attention.h"

namespace spry::testing {

namespace {

// Heads, sizes, blocks and cache types.
void AddShapes(std::vector<AttentionCase>& cases) {
  for (const int block_size : {8, 16, 32, 64, 128, 256}) {
    cases.push_back(
        {.name = "grouped, blocks of " + std::to_string(block_size), .block_size = block_size});
  }
  cases.push_back({.name = "a kv head per head", .num_heads = 3, .num_kv_heads = 3});
  cases.push_back({.name = "one kv head", .num_heads = 5, .num_kv_heads = 1});
  cases.push_back({.name = "values narrower", .head_dim = 24, .v_head_dim = 8});
  cases.push_back({.name = "odd sizes", .head_dim = 7, .v_head_dim = 5});
  cases.push_back({.name = "head size 64", .head_dim = 64, .v_head_dim = 64, .scale = 0.125f});
  cases.push_back({.name = "eight to one", .num_heads = 8, .num_kv_heads = 1});
  cases.push_back({.name = "three to one, head size 64",
                   .num_heads = 6,
                   .head_dim = 64,
                   .v_head_dim = 64,
                   .kv = DType::kBF16,
                   .scale = 0.125f});
  cases.push_back({.name = "head size 80, values wider",
                   .num_heads = 2,
                   .num_kv_heads = 1,
                   .head_dim = 80,
                   .v_head_dim = 112,
                   .block_size = 32,
                   .kv = DType::kF16,
                   .scale = 0.1f});
  cases.push_back({.name = "head size 256, blocks of 8",
                   .num_heads = 1,
                   .num_kv_heads = 1,
                   .head_dim = 256,
                   .v_head_dim = 256,
                   .block_size = 8,
                   .kv = DType::kBF16,
                   .scale = 0.05f});
  cases.push_back({.name = "bf16 cache", .kv = DType::kBF16});
  for (const int dim : {32, 48, 96, 112}) {
    cases.push_back({.name = "bf16 cache, values of " + std::to_string(dim),
                     .head_dim = 48,
                     .v_head_dim = dim,
                     .kv = DType::kBF16});
  }
  cases.push_back({.name = "f16 cache", .kv = DType::kF16});
}

// Caches of bf16 whose sizes AMX takes.
AttentionCase TileCase(std::string name, int group, int dim, int block_size) {
  return {.name = "tiles, " + std::move(name),
          .num_heads = 2 * group,
          .num_kv_heads = 2,
          .head_dim = dim,
          .v_head_dim = dim,
          .block_size = block_size,
          .kv = DType::kBF16,
          .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
}

void AddTileCases(std::vector<AttentionCase>& cases) {
  cases.push_back(TileCase("head size 32, blocks of 32", 2, 32, 32));
  cases.push_back(TileCase("head size 96, blocks of 64", 1, 96, 64));
  cases.push_back(TileCase("head size 128, blocks of 128", 5, 128, 128));
  cases.push_back(TileCase("head size 256, blocks of 256", 1, 256, 256));
  cases.push_back(TileCase("twenty to one", 20, 32, 16));
  cases.push_back(TileCase("values narrower", 3, 64, 16));
  cases.back().v_head_dim = 48;
  cases.push_back(TileCase("window 3, sinks", 3, 64, 16));
  cases.back().window = 3;
  cases.back().sinks = true;
  cases.push_back(TileCase("window 150, soft cap", 3, 64, 32));
  cases.back().window = 150;
  cases.back().soft_cap = 2.0f;
  cases.push_back(TileCase("window 600, soft cap, alibi, sinks", 3, 64, 16));
  cases.back().window = 600;
  cases.back().soft_cap = 5.0f;
  cases.back().alibi = true;
  cases.back().sinks = true;
}

// What changes or hides scores.
void AddScoreForms(std::vector<AttentionCase>& cases) {
  for (const int window : {1, 4, 16, 100, 600}) {
    cases.push_back({.name = "window " + std::to_string(window), .window = window});
  }
  for (const int window : {511, 513, 1025}) {
    cases.push_back({.name = "grouped 8, window " + std::to_string(window),
                     .num_heads = 8,
                     .num_kv_heads = 1,
                     .block_size = 8,
                     .kv = DType::kF16,
                     .window = window});
  }
  cases.push_back({.name = "head size 80, window 3, sinks",
                   .num_heads = 3,
                   .num_kv_heads = 1,
                   .head_dim = 80,
                   .v_head_dim = 80,
                   .block_size = 64,
                   .kv = DType::kBF16,
                   .window = 3,
                   .sinks = true});
  cases.push_back({.name = "soft cap", .scale = 2.0f, .soft_cap = 3.0f});
  cases.push_back({.name = "soft cap, alibi, head size 64",
                   .head_dim = 64,
                   .v_head_dim = 64,
                   .kv = DType::kF16,
                   .scale = 1.0f,
                   .soft_cap = 20.0f,
                   .alibi = true});
  cases.push_back({.name = "alibi", .alibi = true});
  cases.push_back({.name = "sinks", .sinks = true});
  cases.push_back({.name = "all at once",
                   .kv = DType::kBF16,
                   .window = 37,
                   .soft_cap = 5.0f,
                   .alibi = true,
                   .sinks = true});
}

}  // namespace

std::vector<AttentionCase> AttentionCases() {
  std::vector<AttentionCase> cases;
  AddShapes(cases);
  AddTileCases(cases);
  AddScoreForms(cases);
#if defined(__SANITIZE_ADDRESS__)
  // Bits are compared in the release build. Here memory is watched, at a tenth of the speed: every
  // third case, from the last, which has everything at once.
  std::vector<AttentionCase> some;
  for (size_t i = cases.size(); i > 0; i -= std::min<size_t>(i, 3)) some.push_back(cases[i - 1]);
  return some;
#else
  return cases;
#endif
}

AttentionCase GroupedCase(int num_kv_heads, int group, int head_dim, DType dtype) {
  return {.num_heads = num_kv_heads * group,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .v_head_dim = head_dim,
          .compute = dtype,
          .kv = dtype,
          .scale = 0.125f};
}

std::vector<int32_t> SomeIds(int count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(kAttentionTableRows));
  return ids;
}

bool TakesTiles(const AttentionCase& c, const Target& target) {
  return target.name().starts_with("amx") && c.kv == DType::kBF16 && c.head_dim % 32 == 0 &&
         c.v_head_dim % 16 == 0 && c.block_size % 16 == 0;
}

namespace {

void RotateHeads(Tracer& tracer, const AttentionCase& c, const Tensor& q, const Tensor& k) {
  std::vector<double> frequencies;
  for (int i = 0; i < c.rotary_dim / 2; ++i) {
    frequencies.push_back(std::pow(1e4, -2.0 * i / c.rotary_dim));
  }
  Rope(tracer, q, k, AddRopeTable(tracer, frequencies),
       {.num_heads = c.num_heads,
        .num_kv_heads = c.num_kv_heads,
        .head_dim = c.head_dim,
        .rotary_dim = c.rotary_dim,
        .interleaved = c.rope_interleaved});
}

}  // namespace

AttentionRunner::AttentionRunner(const AttentionCase& c, const Target& target, uint64_t seed)
    : case_(c) {
  const int64_t q_width = int64_t{c.num_heads} * c.head_dim;
  const int64_t k_width = int64_t{c.num_kv_heads} * c.head_dim;
  const int64_t v_width = int64_t{c.num_kv_heads} * c.v_head_dim;
  table_ = RandomWeight("qkv", c.compute, Shape{kAttentionTableRows, q_width + k_width + v_width},
                        1.5f, 51);
  if (c.last_id_is_nan) {
    std::vector<float> floats(table_.values.begin(), table_.values.end());
    std::fill(floats.end() - table_.handle.shape[1], floats.end(),
              std::numeric_limits<float>::quiet_NaN());
    table_ = FloatWeight("qkv", table_.handle.shape, std::move(floats));
  }
  std::vector<float> slopes;
  for (int h = 1; h <= c.num_heads; ++h) slopes.push_back(std::exp2(-8.0f * h / c.num_heads));
  slopes_ = FloatWeight("slopes", Shape{c.num_heads}, slopes);
  sinks_ = RandomWeight("sinks", DType::kF32, Shape{c.num_heads}, 3.0f, 53);
  Tracer tracer("attention", {.compute = c.compute,
                              .activation = target.ActivationDType(c.compute),
                              .kv = c.kv,
                              .max_length = kAttentionMaxTokens});
  const Tensor x = Embed(tracer, table_.handle);
  const Tensor q = x.Columns(0, q_width);
  const Tensor k = x.Columns(q_width, k_width);
  if (c.rotary_dim > 0) RotateHeads(tracer, c, q, k);
  AttentionWeights weights;
  if (c.alibi) weights.alibi_slopes = slopes_.handle;
  if (c.sinks) weights.sinks = sinks_.handle;
  output_ = Attention(tracer, q, k, x.Columns(q_width + k_width, v_width),
                      {.num_heads = c.num_heads,
                       .num_kv_heads = c.num_kv_heads,
                       .head_dim = c.head_dim,
                       .v_head_dim = c.v_head_dim,
                       .scale = c.scale,
                       .window = c.window,
                       .soft_cap = c.soft_cap},
                      weights);
  if (c.compute != DType::kF32) {
    identity_ = IdentityWeight(output_.width);
    output_ = Linear(tracer, output_, {&identity_.handle, 1}, {}, {.logits = true});
  }
  tracer.SetLogits(output_);  // keeps it to the end
  tracer.Emit({.id = OpId::kAdvance});
  program_ = std::make_unique<Program>(*tracer.Finish(kAttentionTableRows));
  FuseOps(*program_, c.fusions);
  blocks_per_row_ = (kAttentionMaxTokens + c.block_size - 1) / c.block_size;
  const int num_blocks = blocks_per_row_ * c.max_rows;
  block_order_.resize(num_blocks);
  std::iota(block_order_.begin(), block_order_.end(), 0);
  Random random(seed);
  for (int i = num_blocks - 1; i > 0; --i) {
    std::swap(block_order_[i], block_order_[random.Below(i + 1)]);
  }
  executable_ = target.Compile(*program_, {.max_tokens = kAttentionMaxTokens,
                                           .max_rows = c.max_rows,
                                           .max_samples = c.max_rows,
                                           .max_blocks_per_row = blocks_per_row_,
                                           .max_block_writes = num_blocks,
                                           .block_size = c.block_size,
                                           .num_blocks = num_blocks});
}

void AttentionRunner::Start(int row, std::vector<int32_t> ids, bool finished) {
  CHECK(row < case_.max_rows && static_cast<int>(ids.size()) <= kAttentionMaxTokens);
  rows_[row] = {.ids = std::move(ids), .finished = finished};
  if (!finished) return;
  // A row that may put out nothing is finished by its first token.
  executable_->RunStep([&](StepWriter& step) {
    step.Join(row, {.max_outputs = 0});
    step.WriteBlock(row, 0, block_order_[row * blocks_per_row_]);
    step.Prefill(row, std::span(rows_[row].ids).first(1), 0, /*sample=*/true);
  });
  rows_[row].joining = false;
}

std::vector<float> AttentionRunner::Step(std::span<const Piece> pieces) {
  int64_t tokens = 0;
  executable_->RunStep([&](StepWriter& step) {
    for (const Piece& piece : pieces) {
      Row& row = rows_.at(piece.row);
      if (row.joining) {
        step.Join(piece.row, {.max_outputs = 1});
        for (int i = 0; i < blocks_per_row_; ++i) {
          step.WriteBlock(piece.row, i, block_order_[piece.row * blocks_per_row_ + i]);
        }
        row.joining = false;
      }
      step.Prefill(piece.row, std::span(row.ids).subspan(row.done, piece.count), row.done,
                   /*sample=*/false);
      row.done += piece.count;
      tokens += piece.count;
    }
  });
  return executable_->Read(output_, tokens);
}

double AttentionRunner::Cached(int32_t id, int64_t column) const {
  const double value = table_.values[id * table_.handle.shape[1] + column];
  const float f = static_cast<float>(value);
  if (case_.kv == DType::kBF16) return Bf16ToFloat(FloatToBf16(f));
  if (case_.kv == DType::kF16) return F16ToFloat(FloatToF16(f));
  return value;
}

std::vector<double> AttentionRunner::Expected(std::span<const int32_t> ids, int position) const {
  const AttentionCase& c = case_;
  const int64_t width = table_.handle.shape[1];
  const int64_t k_column = int64_t{c.num_heads} * c.head_dim;
  const int64_t v_column = k_column + int64_t{c.num_kv_heads} * c.head_dim;
  std::vector<double> output;
  for (int head = 0; head < c.num_heads; ++head) {
    const int kv_head = head / (c.num_heads / c.num_kv_heads);
    std::vector<double> scores;
    const int first = c.window > 0 ? std::max(0, position - c.window + 1) : 0;
    for (int j = first; j <= position; ++j) {
      double score = 0;
      for (int d = 0; d < c.head_dim; ++d) {
        score += table_.values[ids[position] * width + head * c.head_dim + d] *
                 Cached(ids[j], k_column + kv_head * c.head_dim + d);
      }
      score *= c.scale;
      if (c.soft_cap > 0) score = c.soft_cap * std::tanh(score / c.soft_cap);
      if (c.alibi) score += slopes_.values[head] * (j - position);
      scores.push_back(score);
    }
    double max = c.sinks ? sinks_.values[head] : -std::numeric_limits<double>::infinity();
    for (const double score : scores) max = std::max(max, score);
    double sum = c.sinks ? std::exp(sinks_.values[head] - max) : 0;
    std::vector<double> weights;
    for (const double score : scores) sum += weights.emplace_back(std::exp(score - max));
    for (int d = 0; d < c.v_head_dim; ++d) {
      double value = 0;
      for (int j = first; j <= position; ++j) {
        value += weights[j - first] * Cached(ids[j], v_column + kv_head * c.v_head_dim + d);
      }
      output.push_back(value / sum);
    }
  }
  return output;
}

std::vector<float> AttentionRunner::ExpectedOfTiles(std::span<const int32_t> ids,
                                                    int position) const {
  const AttentionCase& c = case_;
  const int64_t width = table_.handle.shape[1];
  const int64_t k_column = int64_t{c.num_heads} * c.head_dim;
  const int64_t v_column = k_column + int64_t{c.num_kv_heads} * c.head_dim;
  std::vector<float> cached(width * kAttentionTableRows);  // of the ids that occur
  for (const int32_t id : ids) {
    for (int64_t i = k_column; i < width; ++i) {
      cached[id * width + i] = static_cast<float>(Cached(id, i));
    }
  }
  std::vector<float> output;
  for (int head = 0; head < c.num_heads; ++head) {
    const int kv_head = head / (c.num_heads / c.num_kv_heads);
    const std::vector<float> q(
        table_.values.begin() + ids[position] * width + head * c.head_dim,
        table_.values.begin() + ids[position] * width + (head + 1) * c.head_dim);
    TileQuery query{.params = {.head_dim = c.head_dim,
                               .v_head_dim = c.v_head_dim,
                               .scale = c.scale,
                               .window = c.window,
                               .soft_cap = c.soft_cap,
                               .has_alibi = c.alibi,
                               .has_sinks = c.sinks},
                    .slope = static_cast<float>(slopes_.values[head]),
                    .sink = static_cast<float>(sinks_.values[head]),
                    .q = q,
                    .position = position};
    for (int j = 0; j <= position; ++j) {
      const float* row = cached.data() + ids[j] * width;
      query.keys.push_back(row + k_column + kv_head * c.head_dim);
      query.values.push_back(row + v_column + kv_head * c.v_head_dim);
    }
    const std::vector<float> line = TileAttention(query);
    output.insert(output.end(), line.begin(), line.end());
  }
  return output;
}

}  // namespace spry::testing
