// Penalties, biases, restrictions and masks through the whole engine, over the CPU's reference and
// fast kernels.
#include <gtest/gtest.h>

#include <map>

#include "base/allocation_counter.h"
#include "device/cpu/cpu_device.h"
#include "device/null/null_device.h"
#include "engine/engine.h"
#include "tests/support/plain_rules.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

using testing::PlainAdjust;
using testing::RuledRequest;

constexpr int kVocab = 320;
constexpr int kMaxLen = 160;
constexpr int kOutputs = 40;

struct Conditions {
  const char* name;
  int max_step_tokens = 512;
  int neighbours = 0;
  int num_blocks = 2000;
  int run_ahead = 1;
  int rule_slots = 64;
  bool warm = false;  // the same prompts ran before, so that they are hit
};

EngineOptions OptionsFor(const Conditions& c) {
  EngineOptions options;
  constexpr int kBlockSize = 16;
  constexpr int64_t kTokenBytes = 2 * 2 * 32 * 4;
  options.runner.memory = {.max_rows = 64,
                           .max_step_tokens = c.max_step_tokens,
                           .max_model_len = kMaxLen,
                           .block_size = kBlockSize,
                           .kv_bytes = c.num_blocks * kBlockSize * kTokenBytes,
                           .run_ahead = c.run_ahead,
                           .max_rule_slots = c.rule_slots};
  return options;
}

std::unique_ptr<Engine> MakeEngine(std::unique_ptr<Device> device, const EngineOptions& options) {
  auto engine = Engine::Create(std::move(device), DummyCheckpoint(TinyLlamaConfig()), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

std::unique_ptr<Engine> MakeCpuEngine(CpuIsa isa, const Conditions& c) {
  auto device = MakeCpuDevice({.threads = 2, .isa = isa});
  EXPECT_TRUE(device.ok()) << device.status().message();
  return MakeEngine(*std::move(device), OptionsFor(c));
}

std::span<const TokenEvent> StepOf(Engine& engine) {
  const auto events = engine.Step();
  EXPECT_TRUE(events.ok()) << events.status().message();
  EXPECT_EQ(engine.CheckIntegrity().message(), "");
  return events.ok() ? *events : std::span<const TokenEvent>();
}

// Allows one of two ids in turn, and notes what it was asked.
class Alternate final : public TokenMask {
 public:
  Alternate(int first, int second) : ids_{first, second} {}
  void Fill(std::span<const TokenId> outputs, std::span<uint32_t> allowed) override {
    for (size_t i = 0; i < outputs.size(); ++i) right_ &= outputs[i] == TokenId(ids_[i % 2]);
    ++asked_[outputs.size()];
    std::ranges::fill(allowed, 0);
    const int id = ids_[outputs.size() % 2];
    allowed[id / 32] = 1u << id % 32;
  }
  bool right() const { return right_; }
  const std::map<size_t, int>& asked() const { return asked_; }  // by number of outputs

 private:
  int ids_[2];
  bool right_ = true;
  std::map<size_t, int> asked_;
};

std::vector<TokenId> Ids(std::initializer_list<int> values) {
  std::vector<TokenId> ids;
  for (const int value : values) ids.emplace_back(value);
  return ids;
}

// A request of kind `kind`: greedy ones loop without rules, which is what penalties feel.
constexpr int kKinds = 8;
GenerationRequest Request(int kind) {
  GenerationRequest request;
  const int length = 20 + 11 * kind;
  for (int i = 0; i < length; ++i) request.prompt.emplace_back((i * i + kind) % 300);
  SamplingParams& sampling = request.sampling;
  sampling = {.temperature = kind % 2 == 0 ? 0.0 : 0.8,
              .seed = kind,
              .max_tokens = kOutputs,
              .ignore_eos = true};
  switch (kind) {
    case 0: sampling.repetition_penalty = 2.0; break;
    case 1: sampling.presence_penalty = 1.5, sampling.top_p = 0.8; break;
    case 2: sampling.frequency_penalty = 0.7, sampling.repetition_penalty = 1.1; break;
    case 3: sampling.logit_bias = {{TokenId(5), 3.0f}, {TokenId(6), -100.0f}}; break;
    case 4: sampling.allowed_token_ids = Ids({9, 8, 7, 6, 5, 300}); break;
    case 5:
      sampling.allowed_token_ids = Ids({4, 11, 12, 13});
      sampling.bad_words = {Ids({4}), Ids({11, 11}), Ids({12, 13, 11})};
      sampling.frequency_penalty = 0.1;
      break;
    case 6: request.mask = std::make_shared<Alternate>(21, 42); break;
    default: break;  // no rules
  }
  return request;
}

using Outputs = std::vector<std::vector<int>>;

// All kinds at once among plain neighbours; the outputs of each kind.
Outputs RunTogether(Engine& engine, const Conditions& c) {
  std::map<RequestId, int> kinds;
  Outputs outputs(kKinds);
  const int rounds = c.warm ? 2 : 1;
  for (int round = 0; round < rounds; ++round) {
    outputs.assign(kKinds, {});
    for (int i = 0; i < c.neighbours; ++i) {
      GenerationRequest neighbour = Request(i % 6);
      neighbour.prompt.resize(1 + i % 19);
      neighbour.sampling.max_tokens = 1 + i * 7 % 60;
      EXPECT_TRUE(engine.Submit(neighbour).ok());
      if (i < kKinds) kinds[*engine.Submit(Request(i))] = i;
    }
    for (int kind = c.neighbours; kind < kKinds; ++kind) {
      kinds[*engine.Submit(Request(kind))] = kind;
    }
    while (!engine.idle()) {
      for (const TokenEvent& event : StepOf(engine)) {
        EXPECT_NE(event.finish, FinishReason::kError);
        const auto found = kinds.find(event.request);
        if (found != kinds.end()) outputs[found->second].push_back(event.token.value());
      }
    }
  }
  return outputs;
}

class Rules : public ::testing::TestWithParam<CpuIsa> {};

// Each token is what a plain reading of the rules takes from the raw logits of its step, given the
// whole prompt and all outputs before it.
TEST_P(Rules, EachTokenIsThatOfAPlainReading) {
  for (int kind = 0; kind < kKinds; kind += 2) {  // the greedy ones
    auto engine = MakeCpuEngine(GetParam(), {.name = "alone"});
    const GenerationRequest request = Request(kind);
    const SamplingParams& sampling = request.sampling;
    RuledRequest plain{.prompt = request.prompt};
    plain.rules = {.repetition_penalty = static_cast<float>(sampling.repetition_penalty),
                   .presence_penalty = static_cast<float>(sampling.presence_penalty),
                   .frequency_penalty = static_cast<float>(sampling.frequency_penalty),
                   .biases = sampling.logit_bias,
                   .allowed = sampling.allowed_token_ids.value_or(std::vector<TokenId>()),
                   .bad_words = sampling.bad_words};
    ASSERT_TRUE(engine->Submit(request).ok());
    std::vector<float> logits(kVocab);
    while (!engine->idle()) {
      const auto events = StepOf(*engine);
      if (events.empty()) continue;
      ASSERT_TRUE(engine->runner().CopyLogits(logits).ok());
      if (request.mask != nullptr) {
        plain.rules.allowed = Ids({plain.outputs.size() % 2 == 0 ? 21 : 42});
      }
      const std::vector<float> adjusted = PlainAdjust(logits, plain);
      const auto best = std::ranges::max_element(adjusted) - adjusted.begin();
      ASSERT_EQ(events[0].token.value(), best) << kind << ", " << plain.outputs.size();
      plain.outputs.push_back(events[0].token);
    }
    EXPECT_EQ(plain.outputs.size(), static_cast<size_t>(kOutputs));
  }
}

TEST_P(Rules, IdsAreTheSameUnderAllConditions) {
  Outputs alone(kKinds);
  for (int kind = 0; kind < kKinds; ++kind) {
    auto engine = MakeCpuEngine(GetParam(), {.name = "alone"});
    ASSERT_TRUE(engine->Submit(Request(kind)).ok());
    while (!engine->idle()) {
      for (const TokenEvent& event : StepOf(*engine)) alone[kind].push_back(event.token.value());
    }
    ASSERT_EQ(alone[kind].size(), static_cast<size_t>(kOutputs)) << kind;
  }
  const Conditions all[] = {
      {.name = "together"},
      {.name = "among neighbours", .neighbours = 50},
      {.name = "chunks of 16", .max_step_tokens = 16},
      {.name = "chunks of 64, neighbours", .max_step_tokens = 64, .neighbours = 30},
      {.name = "preempted", .neighbours = 40, .num_blocks = 20},
      {.name = "cache hits", .warm = true},  // prompt tokens that nobody computes count (B074)
      {.name = "run-ahead 2", .neighbours = 20, .run_ahead = 2},  // the newest token counts (B076)
      {.name = "run-ahead 8", .neighbours = 20, .run_ahead = 8},
      {.name = "run-ahead 8, preempted", .neighbours = 40, .num_blocks = 20, .run_ahead = 8},
      {.name = "one slot", .neighbours = 20, .run_ahead = 2, .rule_slots = 1},
      {.name = "three slots, cache hits", .run_ahead = 8, .rule_slots = 3, .warm = true},
  };
  for (const Conditions& c : all) {
    auto engine = MakeCpuEngine(GetParam(), c);
    EXPECT_EQ(RunTogether(*engine, c), alone) << c.name;
    if (c.num_blocks < 100) {
      EXPECT_GT(engine->stats().preemptions, 0u) << c.name;
    }
    if (c.warm) {
      EXPECT_GT(engine->stats().prefix_hit_tokens, 200u) << c.name;
    }
  }
}

// A toy grammar beside free runners, eight steps ahead: it is asked once for each token, with all
// tokens before it, and the others do not wait.
TEST_P(Rules, AMaskIsAskedOnceForEachTokenWhileOthersRunAhead) {
  auto engine = MakeCpuEngine(GetParam(), {.name = "", .run_ahead = 8});
  const auto mask = std::make_shared<Alternate>(3, 319);
  GenerationRequest masked = Request(7);
  masked.mask = mask;
  masked.sampling.allowed_token_ids = Ids({3, 5, 319});
  const RequestId masked_id = *engine->Submit(masked);
  const RequestId free_id = *engine->Submit(Request(7));
  std::vector<int> outputs;
  size_t free_outputs = 0, masked_when_free_ended = 0;
  while (!engine->idle()) {
    for (const TokenEvent& event : StepOf(*engine)) {
      if (event.request == masked_id) outputs.push_back(event.token.value());
      if (event.request == free_id && ++free_outputs == kOutputs) {
        masked_when_free_ended = outputs.size();
      }
    }
  }
  ASSERT_EQ(outputs.size(), static_cast<size_t>(kOutputs));
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(outputs[i], i % 2 == 0 ? 3 : 319);
  EXPECT_TRUE(mask->right());
  ASSERT_EQ(mask->asked().size(), static_cast<size_t>(kOutputs));
  for (const auto& [num_outputs, times] : mask->asked()) EXPECT_EQ(times, 1) << num_outputs;
  EXPECT_LT(masked_when_free_ended, static_cast<size_t>(kOutputs / 4));
}

TEST_P(Rules, ARequestWithNothingToChooseEndsAlone) {
  auto engine = MakeCpuEngine(GetParam(), {.name = ""});
  GenerationRequest stuck = Request(4);
  stuck.sampling.allowed_token_ids = Ids({7, 8});
  stuck.sampling.bad_words = {Ids({7}), Ids({8, 8})};  // after one 8 nothing is left
  const RequestId stuck_id = *engine->Submit(stuck);
  ASSERT_TRUE(engine->Submit(Request(0)).ok());
  std::vector<int> of_stuck;
  int others = 0;
  while (!engine->idle()) {
    for (const TokenEvent& event : StepOf(*engine)) {
      if (event.request != stuck_id) {
        ++others;
      } else if (event.finish == FinishReason::kError) {
        EXPECT_EQ(event.fault, RowFault::kNothingAllowed);
      } else {
        of_stuck.push_back(event.token.value());
      }
    }
  }
  EXPECT_EQ(of_stuck, std::vector<int>{8});
  EXPECT_EQ(others, kOutputs);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Rules, ::testing::Values(CpuIsa::kReference, CpuIsa::kAuto));

TEST(RulesOnTheHost, SteadyStepsAllocateNothing) {
  for (const int run_ahead : {1, 2, 8}) {
    auto engine = MakeEngine(MakeNullDevice({}), OptionsFor({.name = "", .run_ahead = run_ahead}));
    for (int kind = 0; kind < kKinds; ++kind) {
      GenerationRequest request = Request(kind);
      request.sampling.max_tokens = 60;
      request.mask = nullptr;
      ASSERT_TRUE(engine->Submit(request).ok());
    }
    class Anything final : public TokenMask {
     public:
      void Fill(std::span<const TokenId>, std::span<uint32_t> allowed) override {
        std::ranges::fill(allowed, ~0u);
      }
    };
    GenerationRequest masked = Request(4);
    masked.sampling.max_tokens = 60;
    masked.mask = std::make_shared<Anything>();
    ASSERT_TRUE(engine->Submit(masked).ok());
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(engine->Step().ok());
    const uint64_t before = ThreadAllocations();
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(engine->Step().ok());
    EXPECT_EQ(ThreadAllocations() - before, 0u) << run_ahead;
  }
}

// B037, B050 and their like: refused by field, value and range.
TEST(RulesOnTheHost, BadRulesAreRefusedByField) {
  auto engine = MakeEngine(MakeNullDevice({}), OptionsFor({.name = ""}));
  struct Case {
    const char* words;
    void (*change)(SamplingParams&);
  };
  const Case cases[] = {
      {"repetition_penalty is 0;", [](auto& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty is -1;", [](auto& p) { p.repetition_penalty = -1; }},
      {"repetition_penalty is nan;", [](auto& p) { p.repetition_penalty = NAN; }},
      {"repetition_penalty is 1e-50;", [](auto& p) { p.repetition_penalty = 1e-50; }},
      {"repetition_penalty is 1e+300;", [](auto& p) { p.repetition_penalty = 1e300; }},
      {"presence_penalty is 2.5;", [](auto& p) { p.presence_penalty = 2.5; }},
      {"frequency_penalty is 3;", [](auto& p) { p.frequency_penalty = 3; }},
      {"frequency_penalty is nan;", [](auto& p) { p.frequency_penalty = NAN; }},
      {"logit_bias has 999999;",
       [](auto& p) {
         p.logit_bias = {{TokenId(999999), 5}};
       }},
      {"logit_bias has -1;",
       [](auto& p) {
         p.logit_bias = {{TokenId(-1), 5}};
       }},
      {"logit_bias of 11 is 101;",
       [](auto& p) {
         p.logit_bias = {{TokenId(11), 101}};
       }},
      {"logit_bias of 11 is nan;",
       [](auto& p) {
         p.logit_bias = {{TokenId(11), NAN}};
       }},
      {"logit_bias has 3 twice",
       [](auto& p) {
         p.logit_bias = {{TokenId(3), 1}, {TokenId(3), 2}};
       }},
      {"logit_bias entries is 1025;", [](auto& p) { p.logit_bias.resize(kMaxLogitBiases + 1); }},
      {"allowed_token_ids is empty", [](auto& p) { p.allowed_token_ids.emplace(); }},
      {"allowed_token_ids has 320;",
       [](auto& p) {
         p.allowed_token_ids = Ids({1, 320});
       }},
      {"bad_words has -5;",
       [](auto& p) {
         p.bad_words = {Ids({1, -5})};
       }},
      {"one of bad_words is 0;", [](auto& p) { p.bad_words.resize(1); }},
      {"one of bad_words is 33;",
       [](auto& p) {
         p.bad_words.assign(1, {33, TokenId(1)});
       }},
      {"sequences is 1025;", [](auto& p) { p.bad_words.assign(kMaxBadWords + 1, {TokenId(1)}); }},
      {"bad_words is 4128;",
       [](auto& p) { p.bad_words.assign(129, std::vector<TokenId>(32, TokenId(1))); }},
  };
  for (const Case& c : cases) {
    GenerationRequest request = Request(7);
    c.change(request.sampling);
    const auto id = engine->Submit(request);
    ASSERT_FALSE(id.ok()) << c.words;
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(id.status().message().find(c.words), std::string::npos) << id.status().message();
  }
  EXPECT_TRUE(engine->idle());
}

TEST(RulesOnTheHost, WithoutSlotsRulesAreRefusedWithTheFlag) {
  auto engine = MakeEngine(MakeNullDevice({}), OptionsFor({.name = "", .rule_slots = 0}));
  const auto id = engine->Submit(Request(0));
  ASSERT_FALSE(id.ok());
  EXPECT_NE(id.status().message().find("--max-rule-slots"), std::string::npos);
  EXPECT_TRUE(engine->Submit(Request(7)).ok());
}

// Slots are a pool: their memory is a product, and what plain rows need does not grow by it.
TEST(RulesOnTheHost, MemoryIsThatOfTheSlots) {
  const auto step_bytes = [](std::optional<int> slots, int rows) {
    EngineOptions options = OptionsFor({.name = ""});
    options.runner.memory.max_rule_slots = slots;
    options.runner.memory.max_rows = rows;
    return MakeEngine(MakeNullDevice({}), options)->memory_plan().needs.step;
  };
  const int64_t slot = MakeRuleSlotLayout(kVocab).slot_bytes;
  EXPECT_GE(step_bytes(10, 64) - step_bytes(0, 64), 10 * slot);
  EXPECT_LT(step_bytes(10, 64) - step_bytes(0, 64), 10 * slot + 1024);
  EXPECT_EQ(step_bytes(std::nullopt, 64), step_bytes(64, 64));
  EXPECT_EQ(step_bytes(std::nullopt, 200), step_bytes(64, 200));
  EXPECT_EQ(step_bytes(std::nullopt, 8), step_bytes(8, 8));
  EXPECT_EQ(step_bytes(500, 8), step_bytes(8, 8));  // more than rows are of no use
}

}  // namespace
}  // namespace spry
