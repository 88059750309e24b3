// Random submits, cancels, steps and commits over many small configurations: every request gets the
// tokens that it gets alone, however little memory there is and however many steps are in flight.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/sched/simulation.h"

namespace spry::testing {
namespace {

// 3 depths x 4 block sizes x caching on and off x seeds x operations: half a million.
constexpr int kDepths[] = {1, 2, 8};
constexpr int kBlockSizes[] = {1, 3, 4, 16};
constexpr int kSeeds = 30;
constexpr int kOperations = 700;

class RandomRun {
 public:
  RandomRun(uint64_t seed, int depth, int block_size, bool prefix_caching) : random_(seed) {
    SchedulerOptions options{.max_rows = Between(1, 8),
                             .max_step_tokens = Between(1, 40),
                             .max_model_len = Between(2, 60),
                             .max_waiting = 12,
                             .max_steps_in_flight = depth};
    options.max_rule_slots = Between(1, 5);
    options.long_prefill_threshold = Between(0, 1) * Between(1, 20);
    options.max_targets = Between(1, 24);
    const int needed = (options.max_model_len + block_size - 1) / block_size;
    const BlockPoolOptions pool{.num_blocks = needed + Between(0, needed),
                                .block_size = block_size,
                                .prefix_caching = prefix_caching,
                                .hash_key = seed};
    options.max_block_writes = FewestBlockWrites(options, pool) + Between(0, 1) * 100;
    max_model_len_ = options.max_model_len;
    urgency_ = Between(0, 1) * Between(1, 3);
    limits_prompts_ = Between(0, 2) == 0;
    simulation_ = std::make_unique<Simulation>(pool, options);
  }

  Status Operate() {
    switch (Between(0, 99)) {
      case 0 ... 19: return Submit();
      case 20 ... 24:
        if (next_id_ == 0) return {};
        return simulation_->Cancel(RequestId(Between(0, static_cast<int>(next_id_) - 1)));
      case 25: simulation_->pool().ResetPrefixCache(); return {};
      case 26: LimitPrompts(); return {};
      case 27 ... 64: return simulation_->can_launch() ? simulation_->Step().status() : Status();
      default:
        return simulation_->scheduler().steps_in_flight() > 0 ? simulation_->Commit() : Status();
    }
  }

  Status Drain() { return simulation_->Drain(); }
  SchedulerStats stats() const { return simulation_->scheduler().stats(); }

 private:
  int Between(int low, int high) { return low + static_cast<int>(random_() % (high - low + 1)); }

  void LimitPrompts() {
    if (limits_prompts_) simulation_->LimitPromptsBesideDecodes(Between(1, 20));
  }

  // Prompts of three families, each differing from its family only in its tail, if at all.
  Status Submit() {
    const int family = Between(0, 2);
    const bool judges = Between(0, 3) == 0;
    const bool scores = judges && Between(0, 2) == 0;  // and has no output
    const int length = Between(1, max_model_len_ - (scores ? 0 : 1));
    const int tail = Between(0, 3) == 0 ? Between(0, length) : 0;
    RequestSpec spec{
        .id = RequestId(next_id_), .prompt = {}, .params = {}, .cache_salt = {}, .rules = {}};
    for (int i = 0; i < length; ++i) {
      spec.prompt.push_back(TokenId(i < length - tail ? family * 1000 + i : Between(0, 2)));
    }
    if (Between(0, 4) == 0) spec.cache_salt = "salt";
    spec.params.seed = Between(0, 3);
    spec.params.max_outputs = scores ? 0 : Between(1, 40);
    if (judges) spec.params.num_prompt_logprobs = 0;
    if (urgency_ > 0) spec.priority = Between(-urgency_, urgency_);
    if (Between(0, 1) == 0) {
      spec.params.num_stop_ids = Between(1, 3);
      for (int i = 0; i < spec.params.num_stop_ids; ++i) {
        spec.params.stop_ids[i] = TokenId(Between(0, 96));
      }
    }
    // A third of them want one of a few slots.
    if (Between(0, 2) == 0) {
      const bool with_mask = Between(0, 2) == 0;
      spec.rules = FakeRules(Between(2, 9), with_mask);
    }
    if (Between(0, 9) == 0) FailAt(Between(0, 5), spec.params);
    const Status status = simulation_->Submit(std::move(spec));
    if (status.ok()) ++next_id_;
    return status.code() == StatusCode::kResourceExhausted ? Status() : status;
  }

  std::mt19937_64 random_;
  int max_model_len_ = 0;
  bool limits_prompts_ = false;
  int urgency_ = 0;  // priorities are that far from 0 at most
  std::unique_ptr<Simulation> simulation_;
  uint64_t next_id_ = 0;
};

TEST(SchedulerRandom, EveryRequestGetsTheTokensItGetsAlone) {
  SchedulerStats total;
  uint64_t seed = 0;
  for (int depth : kDepths) {
    for (int block_size : kBlockSizes) {
      for (int i = 0; i < 2 * kSeeds; ++i) {
        ++seed;
        SCOPED_TRACE(::testing::Message() << "depth " << depth << ", seed " << seed);
        RandomRun run(seed, depth, block_size, /*prefix_caching=*/i % 2 == 0);
        for (int operation = 0; operation < kOperations; ++operation) {
          ASSERT_EQ(run.Operate().message(), "") << "operation " << operation;
        }
        ASSERT_EQ(run.Drain().message(), "");
        total.preemptions += run.stats().preemptions;
        total.prefix_hit_tokens += run.stats().prefix_hit_tokens;
      }
    }
  }
  // The runs did go where it is dangerous.
  RecordProperty("preemptions", static_cast<int>(total.preemptions));
  RecordProperty("prefix_hit_tokens", static_cast<int>(total.prefix_hit_tokens));
  EXPECT_GT(total.preemptions, 4500u);
  EXPECT_GT(total.prefix_hit_tokens, 25000u);
}

}  // namespace
}  // namespace spry::testing
