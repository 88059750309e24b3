#include "engine/engine.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "base/clock.h"
#include "engine/row_params.h"
#include "ops/random.h"

namespace spry {
namespace {

// From the system, so that nobody outside can craft prompts whose blocks collide.
uint64_t RandomKey() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(std::unique_ptr<Device> device,
                                               const Checkpoint& checkpoint,
                                               const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine);
  engine->device_ = std::move(device);
  SPRY_ASSIGN_OR_RETURN(engine->runner_,
                        ModelRunner::Create(*engine->device_, checkpoint, options.runner));
  const MemoryPlan& memory = engine->runner_->memory_plan();
  engine->pool_ =
      std::make_unique<BlockPool>(BlockPoolOptions{.num_blocks = memory.limits.num_blocks,
                                                   .block_size = memory.limits.block_size,
                                                   .prefix_caching = options.prefix_caching,
                                                   .hash_key = RandomKey()});
  engine->scheduler_ = std::make_unique<Scheduler>(
      SchedulerOptions{.max_rows = memory.limits.max_rows,
                       .max_step_tokens = memory.limits.max_tokens,
                       .max_model_len = static_cast<int>(memory.max_model_len),
                       .max_waiting = options.max_waiting,
                       .max_block_writes = memory.limits.max_block_writes,
                       .max_steps_in_flight = memory.run_ahead,
                       .max_rule_slots = memory.limits.max_rule_slots,
                       .long_prefill_threshold = options.long_prefill_threshold,
                       .max_targets = kPromptLogprobSamples},
      *engine->pool_);
  engine->pace_ = std::make_unique<PromptPace>(std::make_unique<SteadyClock>(),
                                               memory.limits.max_tokens, memory.run_ahead);
  engine->eos_tokens_ = checkpoint.config.eos_tokens;
  engine->policy_ = options.policy;
  engine->seed_ = options.seed;
  engine->events_.reserve(memory.limits.max_rows);
  engine->launched_tokens_.reserve(memory.run_ahead);
  return engine;
}

Status Engine::ValidatePrompt(const std::vector<TokenId>& prompt) const {
  if (prompt.empty()) return InvalidArgument("the prompt is empty; give at least one token");
  const int64_t vocab_size = program().vocab_size;
  for (const TokenId id : prompt) {
    if (id.value() < 0 || id.value() >= vocab_size) {
      return InvalidArgument(
          fmt::format("the prompt has token id {}; ids of this model go from 0 to {}", id.value(),
                      vocab_size - 1));
    }
  }
  return {};
}

Status Engine::Check(const GenerationRequest& request) const {
  SPRY_RETURN_IF_ERROR(Validate(request.sampling, program().vocab_size));
  SPRY_RETURN_IF_ERROR(ValidatePrompt(request.prompt));
  if (request.sampling.n != 1) {
    return InvalidArgument(
        fmt::format("n is {}; it must be 1 here: each answer is a request", request.sampling.n));
  }
  if (request.priority != 0 && policy_ != SchedulingPolicy::kPriority) {
    return InvalidArgument(fmt::format(
        "priority is {}; other values than 0 need --scheduling-policy priority", request.priority));
  }
  return MakeRowParams(request.sampling, eos_tokens_, /*drawn_seed=*/0).status();
}

double Engine::kv_usage() const {
  return 1.0 - static_cast<double>(pool_->num_free()) / memory_plan().limits.num_blocks;
}

Result<RequestId> Engine::Submit(GenerationRequest request) {
  SPRY_RETURN_IF_ERROR(Check(request));
  const RequestId id(next_request_);
  SPRY_ASSIGN_OR_RETURN(const RowParams params,
                        MakeRowParams(request.sampling, eos_tokens_, Mix64(seed_ + id.value())));
  SPRY_RETURN_IF_ERROR(
      scheduler_->Submit({.id = id,
                          .prompt = std::move(request.prompt),
                          .params = params,
                          .cache_salt = std::move(request.cache_salt),
                          .priority = request.priority,
                          .rules = MakeLogitRules(request.sampling, std::move(request.mask))}));
  ++next_request_;
  return id;
}

bool Engine::Cancel(RequestId request) { return scheduler_->Cancel(request); }

Result<std::span<const TokenEvent>> Engine::Step(int64_t now) {
  events_.clear();
  launched_tokens_.clear();
  while (scheduler_->steps_in_flight() < memory_plan().run_ahead &&
         scheduler_->Schedule(plan_, now) == Scheduler::Outcome::kLaunch) {
    pace_->Launched(plan_.num_prompt_tokens);
    SPRY_RETURN_IF_ERROR(runner_->Launch(plan_));
    launched_tokens_.push_back(plan_.num_tokens);
  }
  if (runner_->steps_in_flight() == 0) return std::span<const TokenEvent>(events_);
  SPRY_ASSIGN_OR_RETURN(const StepResults results, runner_->WaitOldest());
  pace_->Done();
  scheduler_->LimitPromptsBesideDecodes(pace_->prompt_tokens());
  scheduler_->Commit(results, events_);
  return std::span<const TokenEvent>(events_);
}

}  // namespace spry
