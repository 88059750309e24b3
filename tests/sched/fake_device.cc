#include "tests/sched/fake_device.h"

#include <algorithm>

#include "base/check.h"

namespace spry::testing {
namespace {

constexpr int kVocabSize = 97;

uint64_t Mix(uint64_t state, uint64_t value) {
  state ^= value + 0x9e3779b97f4a7c15 + (state << 6) + (state >> 2);
  state *= 0xff51afd7ed558ccd;
  return state ^ (state >> 33);
}

uint64_t DigestOf(uint64_t before, TokenId token) { return Mix(before, token.value()); }

// The fake's logits and sampling in one: history, seed and index decide.
TokenId TokenFrom(uint64_t history, const RowParams& params, int output_index) {
  return TokenId(static_cast<int>(Mix(Mix(history, params.seed), output_index) % kVocabSize));
}

// What the fake says of a known token: its rank gives away the history that it was judged by.
TokenLogprobs LogprobsOf(uint64_t history, TokenId token) {
  constexpr uint64_t kRanks = 1 << 30;
  return {.rank = static_cast<int32_t>(Mix(history, token.value()) % kRanks),
          .chosen = {.token = token}};
}

bool FailsAt(const RowParams& params, int output_index) {
  return params.top_k != 0 && params.top_k == output_index + 1;
}

FinishReason FinishAfter(TokenId token, int num_outputs, const RowParams& params) {
  const std::span stops(params.stop_ids, params.num_stop_ids);
  if (std::ranges::find(stops, token) != stops.end()) return FinishReason::kStop;
  return num_outputs >= params.max_outputs ? FinishReason::kLength : FinishReason::kNone;
}

}  // namespace

void FailAt(int output_index, RowParams& params) { params.top_k = output_index + 1; }

Expected RunAlone(std::span<const TokenId> prompt, const RowParams& params, int max_model_len) {
  RowParams cut = params;
  cut.max_outputs = std::min(params.max_outputs, max_model_len - static_cast<int>(prompt.size()));
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  Expected expected;
  if (params.max_outputs == 0) expected.finish = FinishReason::kLength;
  uint64_t prompt_digest = 0;
  uint64_t prompt_history = 0;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    prompt_history = Mix(prompt_history, prompt_digest = DigestOf(prompt_digest, prompt[i]));
    expected.prompt_logprobs.push_back(LogprobsOf(prompt_history, prompt[i + 1]));
  }
  while (expected.finish == FinishReason::kNone) {
    uint64_t digest = 0;
    uint64_t history = 0;
    for (TokenId token : tokens) history = Mix(history, digest = DigestOf(digest, token));
    const int index = static_cast<int>(expected.outputs.size());
    if (FailsAt(params, index)) {
      expected.finish = FinishReason::kError;
      break;
    }
    tokens.push_back(TokenFrom(history, params, index));
    expected.outputs.push_back(tokens.back());
    expected.finish = FinishAfter(tokens.back(), index + 1, cut);
  }
  return expected;
}

FakeDevice::FakeDevice(const FakeDeviceOptions& options)
    : options_(options),
      rows_(options.max_rows),
      kv_(static_cast<size_t>(options.num_blocks) * options.block_size) {}

void FakeDevice::Launch(const BatchPlan& plan) {
  Step step{.plan = plan, .tokens = {}, .params = {}};
  for (const PlannedRow& row : plan.rows) {
    const int known = row.num_tokens + (row.num_samples > 0 && !row.draws ? 1 : 0);
    step.tokens.emplace_back(row.tokens, row.tokens + (row.decode ? 0 : known));
  }
  for (const RowJoin& join : plan.joins) step.params.push_back(*join.params);
  stream_.push_back(std::move(step));
}

FakeDevice::Results FakeDevice::Retire() {
  CHECK(!stream_.empty());
  const Step step = std::move(stream_.front());
  stream_.pop_front();
  for (size_t i = 0; i < step.plan.joins.size(); ++i) {
    const RowJoin& join = step.plan.joins[i];
    rows_[join.row.value()] = {.params = step.params[i],
                               .blocks = {},
                               .num_outputs = join.num_outputs,
                               .last_token = {},
                               .finished = false};
  }
  for (const BlockWrite& write : step.plan.block_writes) {
    std::vector<BlockId>& blocks = rows_[write.row.value()].blocks;
    CHECK(write.index == static_cast<int>(blocks.size()));  // tables grow one by one
    blocks.push_back(write.block);
  }
  Results results;
  for (size_t i = 0; i < step.plan.rows.size(); ++i) {
    results.rows.push_back(Compute(step.plan.rows[i], step.tokens[i], results.logprobs));
  }
  return results;
}

RowResult FakeDevice::Compute(const PlannedRow& planned, std::span<const TokenId> tokens,
                              std::vector<TokenLogprobs>& logprobs) {
  RowState& row = rows_[planned.row.value()];
  RowResult result;
  if (row.finished) {
    logprobs.resize(logprobs.size() + planned.num_samples);
    return result;
  }
  if (planned.decode) {
    CHECK(planned.start == row.length);  // the host counted right
    WriteKv(row, row.last_token);
  } else {
    row.length = planned.start;
    for (TokenId token : tokens.first(planned.num_tokens)) WriteKv(row, token);
  }
  Judge(planned, tokens, logprobs);
  if (!planned.draws) return result;
  if (row.params.max_outputs == 0) {
    row.finished = true;
    result.finish = FinishReason::kLength;
    return result;
  }

  // A NaN does not end the row here: what it samples next must be dropped by the host.
  result.saw_nan = FailsAt(row.params, row.num_outputs);
  result.count = 1;
  result.tokens[0] = SampleRow(row);
  result.finish = FinishAfter(row.last_token, row.num_outputs, row.params);
  row.finished = result.finish != FinishReason::kNone;
  return result;
}

// One entry a sample; that of a sample that chooses is empty.
void FakeDevice::Judge(const PlannedRow& planned, std::span<const TokenId> tokens,
                       std::vector<TokenLogprobs>& logprobs) {
  const RowState& row = rows_[planned.row.value()];
  const int num_targets = planned.num_samples - (planned.draws ? 1 : 0);
  const int first = planned.num_tokens - planned.num_samples;
  for (int i = first; i < first + num_targets; ++i) {
    logprobs.push_back(LogprobsOf(History(row, planned.start + i + 1), tokens[i + 1]));
  }
  if (planned.draws) logprobs.emplace_back();
}

uint64_t& FakeDevice::Kv(const RowState& row, int position) {
  CHECK(position < options_.max_model_len);
  const int index = position / options_.block_size;
  CHECK(index < static_cast<int>(row.blocks.size()));  // else KV would be written to nowhere
  return kv_[row.blocks[index].value() * options_.block_size + position % options_.block_size];
}

void FakeDevice::WriteKv(RowState& row, TokenId token) {
  const uint64_t before = row.length == 0 ? 0 : Kv(row, row.length - 1);
  Kv(row, row.length) = DigestOf(before, token);
  ++row.length;
}

TokenId FakeDevice::SampleRow(RowState& row) {
  row.last_token = TokenFrom(History(row, row.length), row.params, row.num_outputs++);
  return row.last_token;
}

uint64_t FakeDevice::History(const RowState& row, int length) {
  uint64_t history = 0;
  for (int i = 0; i < length; ++i) history = Mix(history, Kv(row, i));
  return history;
}

}  // namespace spry::testing
