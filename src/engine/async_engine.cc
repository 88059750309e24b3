#include "engine/async_engine.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "base/check.h"
#include "base/clock.h"

namespace spry {
namespace {

// Steps of full batches that may be unread: enough to hide that the other thread is not always
// there, and few enough that what it takes at once does not keep it from its sockets.
constexpr int kUnreadSteps = 4;

// Nothing may get lost: where memory is short it waits for some. What could not be put in is whole.
template <typename Item>
void Enqueue(Item item, moodycamel::ConcurrentQueue<Item>& queue) {
  // NOLINTNEXTLINE(bugprone-use-after-move): moved from only where it was put in
  while (!queue.enqueue(std::move(item))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

Result<std::unique_ptr<AsyncEngine>> AsyncEngine::Start(std::unique_ptr<Engine> engine,
                                                        const AsyncEngineOptions& options) {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) {
    return ResourceExhausted(
        fmt::format("the system gives no eventfd ({}); raise ulimit -n", std::strerror(errno)));
  }
  std::unique_ptr<AsyncEngine> async(new AsyncEngine(std::move(engine), options, event));
  try {
    async->thread_ = std::thread([self = async.get()] { self->Run(); });
  } catch (const std::system_error& error) {
    return ResourceExhausted(
        fmt::format("the system refuses a thread for the engine: {}; raise the limit on threads "
                    "(ulimit -u) or on virtual memory (ulimit -v)",
                    error.code().message()));
  }
  return async;
}

AsyncEngine::AsyncEngine(std::unique_ptr<Engine> engine, const AsyncEngineOptions& options,
                         int output_event)
    : engine_(std::move(engine)),
      options_(options),
      output_event_(output_event),
      max_unread_(kUnreadSteps * engine_->memory_plan().limits.max_rows) {}

AsyncEngine::~AsyncEngine() {
  Send({.kind = Command::Kind::kStop});
  if (thread_.joinable()) thread_.join();
  close(output_event_);
}

// ---- the other thread ----

Ticket AsyncEngine::Send(Command command) {
  const Ticket ticket = command.ticket;
  Enqueue(std::move(command), commands_);
  Wake();
  return ticket;
}

void AsyncEngine::Wake() {
  wakes_.fetch_add(1, std::memory_order_release);
  wakes_.notify_one();
}

Result<Ticket> AsyncEngine::Submit(GenerationRequest request) {
  if (published_.lost) return Unavailable("the device has failed; restart the server");
  SPRY_RETURN_IF_ERROR(engine_->Check(request));
  if (live() >= options_.max_live) {
    return ResourceExhausted(
        fmt::format("{} requests are running or waiting, as many as may: try again later", live()));
  }
  const Ticket ticket(next_ticket_++);
  Command command{.kind = Command::Kind::kSubmit,
                  .ticket = ticket,
                  .request = std::make_unique<GenerationRequest>(std::move(request))};
  live_.insert(ticket);
  return Send(std::move(command));
}

bool AsyncEngine::Cancel(Ticket ticket) {
  if (live_.erase(ticket) == 0) return false;
  Send({.kind = Command::Kind::kCancel, .ticket = ticket});
  return true;
}

Ticket AsyncEngine::ResetPrefixCache() {
  const Ticket ticket(next_ticket_++);
  live_.insert(ticket);
  return Send({.kind = Command::Kind::kReset, .ticket = ticket});
}

void AsyncEngine::TakeOutputs(std::vector<Output>& outputs) {
  // First what may throw: then all of them are still there, and it is readable.
  outputs.reserve(outputs.size() + max_unread_ + options_.max_live);
  // Before the queue is read: an output that comes later makes it readable again.
  uint64_t count = 0;
  if (read(output_event_, &count, sizeof(count)) < 0) count = 0;
  const int num_outputs = unread_;
  if (num_outputs == 0) return;
  Output output;
  for (int i = 0; i < num_outputs; ++i) {
    CHECK(outputs_.try_dequeue(output));
    if (output.finish != FinishReason::kNone) live_.erase(output.ticket);
    outputs.push_back(std::move(output));
  }
  unread_ -= num_outputs;
  Wake();
}

EngineStatus AsyncEngine::status() const {
  const int64_t began = published_.step_began;
  StepSizes steps{.tokens = published_.step_tokens};
  std::ranges::copy(published_.steps, steps.counts.begin());
  return {.scheduler = {.running = published_.running,
                        .waiting = published_.waiting,
                        .preemptions = published_.preemptions,
                        .prefix_query_tokens = published_.prefix_query_tokens,
                        .prefix_hit_tokens = published_.prefix_hit_tokens},
          .steps = steps,
          .kv_usage = published_.kv_usage,
          .step_age_nanos = began == 0 ? 0 : SteadyClock().NowNanos() - began,
          .lost = published_.lost};
}

// ---- the engine thread ----

void AsyncEngine::Run() {
  const SteadyClock clock;
  while (true) {
    const uint32_t seen = wakes_.load(std::memory_order_acquire);
    if (!TakeCommands()) return;
    if (engine_->idle() || published_.lost || MustWaitForReader()) {
      Publish();
      wakes_.wait(seen, std::memory_order_acquire);
      continue;
    }
    const int64_t now = clock.NowNanos();
    published_.step_began = now;
    const Result<std::span<const TokenEvent>> events = engine_->Step(now);
    published_.step_began = 0;
    CountSteps();
    Publish();
    if (!events.ok()) {
      LoseDevice(events.status());
    } else {
      for (const TokenEvent& event : *events) Take(event);
      if (events->empty()) continue;
    }
    eventfd_write(output_event_, 1);
  }
}

// False when the thread is to end.
bool AsyncEngine::TakeCommands() {
  bool gave = false;
  Command command;
  while (commands_.try_dequeue(command)) {
    switch (command.kind) {
      case Command::Kind::kStop: return false;
      case Command::Kind::kSubmit: {
        const Result<RequestId> id = published_.lost
                                         ? Unavailable("the device has failed; restart the server")
                                         : engine_->Submit(std::move(*command.request));
        if (id.ok()) {
          tickets_[*id] = command.ticket;
          requests_[command.ticket] = *id;
        } else {
          Give({.ticket = command.ticket,
                .finish = FinishReason::kError,
                .error = id.status().message()});
          gave = true;
        }
        break;
      }
      case Command::Kind::kCancel: {
        const auto found = requests_.find(command.ticket);
        if (found == requests_.end()) break;  // it ended meanwhile
        engine_->Cancel(found->second);
        tickets_.erase(found->second);
        requests_.erase(found);
        break;
      }
      case Command::Kind::kReset:
        Give({.ticket = command.ticket,
              .finish = engine_->ResetPrefixCache() ? FinishReason::kStop : FinishReason::kError});
        gave = true;
        break;
    }
  }
  if (gave) eventfd_write(output_event_, 1);
  return true;
}

void AsyncEngine::Take(const TokenEvent& event) {
  const auto found = tickets_.find(event.request);
  CHECK(found != tickets_.end());
  Output output{.ticket = found->second,
                .has_token = event.has_token,
                .token = event.token,
                .finish = event.finish,
                .num_cached_tokens = event.num_cached_tokens,
                .admitted_at = event.admitted_at};
  if (event.logprobs != nullptr) {
    output.logprobs = std::make_unique<TokenLogprobs>(*event.logprobs);
  }
  output.prompt_logprobs.assign(event.prompt_logprobs.begin(), event.prompt_logprobs.end());
  output.first_prompt_position = event.first_prompt_logprob;
  if (event.finish == FinishReason::kError) {
    output.fault = event.fault;
    output.error = FaultText(event.fault);
  }
  Give(std::move(output));
  if (event.finish == FinishReason::kNone) return;
  requests_.erase(found->second);
  tickets_.erase(found);
}

void AsyncEngine::Give(Output output) {
  Enqueue(std::move(output), outputs_);
  ++unread_;  // it can be taken now
}

void AsyncEngine::LoseDevice(const Status& why) {
  published_.lost = true;
  for (const auto& [ticket, request] : requests_) {
    Give({.ticket = ticket, .finish = FinishReason::kError, .error = why.message()});
  }
  requests_.clear();
  tickets_.clear();
}

void AsyncEngine::CountSteps() {
  for (const int tokens : engine_->launched_tokens()) {
    const auto bucket = std::ranges::lower_bound(StepSizes::kMost, tokens);
    ++published_.steps[bucket - StepSizes::kMost.begin()];
    published_.step_tokens += tokens;
  }
}

void AsyncEngine::Publish() {
  const SchedulerStats stats = engine_->stats();
  published_.running = stats.running;
  published_.waiting = stats.waiting;
  published_.preemptions = stats.preemptions;
  published_.prefix_query_tokens = stats.prefix_query_tokens;
  published_.prefix_hit_tokens = stats.prefix_hit_tokens;
  published_.kv_usage = engine_->kv_usage();
}

}  // namespace spry
