// A device that computes nothing but shows every mix-up. It keeps the step protocol as a real one
// does: permanent rows, joins and block writes applied in the order of the steps, decode rows that
// feed themselves, rows that finish by themselves and are padding from then on.
//
// Its "KV" of a position is a digest of the token and of the KV before it, stored in physical
// blocks and always read back through the row's block table. A sampled token is a function of every
// KV entry of its history, and so is what it says of a prompt's token. So a block that is wrong,
// stale, written too late or overwritten too early changes the tokens from there on.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "api/row.h"
#include "sched/batch_plan.h"

namespace spry::testing {

struct FakeDeviceOptions {
  int max_rows = 0;
  int num_blocks = 0;
  int block_size = 0;
  int max_model_len = 0;
};

class FakeDevice {
 public:
  explicit FakeDevice(const FakeDeviceOptions& options);

  // Takes a step into the stream; what `plan` points to is copied, as into a step slot.
  void Launch(const BatchPlan& plan);
  // Computes the oldest step: as late as possible, so that nothing may depend on being early.
  struct Results {
    std::vector<RowResult> rows;
    std::vector<TokenLogprobs> logprobs;  // by sample
  };
  Results Retire();

 private:
  struct RowState {
    RowParams params;
    std::vector<BlockId> blocks;
    int length = 0;  // tokens with KV
    int num_outputs = 0;
    TokenId last_token;
    bool finished = true;  // until somebody joins
  };
  struct Step {
    BatchPlan plan;
    std::vector<std::vector<TokenId>> tokens;  // of each row, the known next one included
    std::vector<RowParams> params;             // of each join
  };

  RowResult Compute(const PlannedRow& planned, std::span<const TokenId> tokens,
                    std::vector<TokenLogprobs>& logprobs);
  void Judge(const PlannedRow& planned, std::span<const TokenId> tokens,
             std::vector<TokenLogprobs>& logprobs);
  uint64_t History(const RowState& row, int length);
  uint64_t& Kv(const RowState& row, int position);
  void WriteKv(RowState& row, TokenId token);
  TokenId SampleRow(RowState& row);

  FakeDeviceOptions options_;
  std::vector<RowState> rows_;
  std::vector<uint64_t> kv_;  // [num_blocks, block_size]
  std::deque<Step> stream_;
};

// What a request gives when it runs alone: its outputs and how it ends.
struct Expected {
  std::vector<TokenId> outputs;
  std::vector<TokenLogprobs> prompt_logprobs;  // from the second token on
  FinishReason finish = FinishReason::kNone;
};
Expected RunAlone(std::span<const TokenId> prompt, const RowParams& params, int max_model_len);

// Makes a request fail by NaN: its output of this index, if it comes so far, is not a number. Lies
// in a field that the fake's sampling has no other use for.
void FailAt(int output_index, RowParams& params);

}  // namespace spry::testing
