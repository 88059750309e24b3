#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>

namespace spry {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets& FirstTokenBuckets() {
  static const Buckets buckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                  0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                  20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
  return buckets;
}

const Buckets& NextTokenBuckets() {
  static const Buckets buckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                  0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
  return buckets;
}

const Buckets& RequestBuckets() {
  static const Buckets buckets = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                  5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                  60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
  return buckets;
}

Buckets StepBuckets() { return {StepSizes::kMost.begin(), StepSizes::kMost.end()}; }

// 1, 2, 5, 10, 20, 50 and so on, up to `most`.
Buckets TokenBuckets(int64_t most) {
  Buckets buckets;
  for (int64_t power = 1;; power *= 10) {
    for (const int64_t mantissa : {1, 2, 5}) {
      if (mantissa * power > most) return buckets;
      buckets.push_back(static_cast<double>(mantissa * power));
    }
  }
}

}  // namespace

struct Metrics::Families {
  Families(const std::string& model_name, const MemoryPlan& plan)
      : labels{{"model_name", model_name}, {"engine", "0"}},
        finished(prometheus::BuildCounter()
                     .Name("vllm:request_success_total")
                     .Help("Requests that ended, by finished_reason.")
                     .Register(registry)),
        tokens(TokenBuckets(plan.max_model_len)) {
    prometheus::Labels cache = labels;
    cache["block_size"] = std::to_string(plan.limits.block_size);
    cache["num_gpu_blocks"] = std::to_string(plan.limits.num_blocks);
    prometheus::BuildGauge()
        .Name("vllm:cache_config_info")
        .Help("Always 1; the labels say how large the KV cache is, on whatever device.")
        .Register(registry)
        .Add(cache)
        .Set(1);
  }

  prometheus::Gauge& Gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Counter& Counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Histogram& Histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }

  prometheus::Registry registry;
  prometheus::Labels labels;
  prometheus::Family<prometheus::Counter>& finished;
  Buckets tokens;

  prometheus::Gauge& running =
      Gauge("vllm:num_requests_running", "Requests that have a row of the engine.");
  prometheus::Gauge& waiting = Gauge("vllm:num_requests_waiting", "Requests that wait for a row.");
  prometheus::Gauge& kv_usage =
      Gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 1 is all.");
  prometheus::Counter& preemptions =
      Counter("vllm:num_preemptions_total", "Requests that gave up their blocks to others.");
  prometheus::Counter& prefix_queries =
      Counter("vllm:prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache.");
  prometheus::Counter& prefix_hits =
      Counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  prometheus::Counter& prompt_tokens =
      Counter("vllm:prompt_tokens_total", "Prompt tokens of requests that ended.");
  prometheus::Counter& cached_tokens =
      Counter("vllm:prompt_tokens_cached_total", "Those of them that were cached.");
  prometheus::Counter& generation_tokens =
      Counter("vllm:generation_tokens_total", "Tokens generated.");
  prometheus::Histogram& first_token = Histogram(
      "vllm:time_to_first_token_seconds", "From arrival to the first token.", FirstTokenBuckets());
  prometheus::Histogram& next_token = Histogram(
      "vllm:inter_token_latency_seconds", "Between a token and the next.", NextTokenBuckets());
  prometheus::Histogram& per_token =
      Histogram("vllm:request_time_per_output_token_seconds",
                "From the first token to the last, by token after the first.", NextTokenBuckets());
  prometheus::Histogram& whole =
      Histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", RequestBuckets());
  prometheus::Histogram& queue =
      Histogram("vllm:request_queue_time_seconds",
                "From the engine's taking a request to its first step.", RequestBuckets());
  prometheus::Histogram& prefill =
      Histogram("vllm:request_prefill_time_seconds", "From its first step to its first token.",
                RequestBuckets());
  prometheus::Histogram& decode = Histogram("vllm:request_decode_time_seconds",
                                            "From its first token to its last.", RequestBuckets());
  prometheus::Histogram& inference =
      Histogram("vllm:request_inference_time_seconds", "From its first step to its last token.",
                RequestBuckets());
  prometheus::Histogram& request_prompt_tokens =
      Histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", tokens);
  prometheus::Histogram& request_generation_tokens =
      Histogram("vllm:request_generation_tokens", "Tokens generated for a request.", tokens);
  prometheus::Histogram& request_n =
      Histogram("vllm:request_params_n", "Choices asked for.", {1, 2, 5, 10, 20});
  prometheus::Histogram& request_max_tokens =
      Histogram("vllm:request_params_max_tokens", "max_tokens of a request.", tokens);
  prometheus::Counter& corrupted =
      Counter("vllm:corrupted_requests_total", "Requests that ended because of NaN logits.");
  prometheus::Histogram& step_tokens = Histogram(
      "vllm:iteration_tokens_total", "Tokens that a step of the engine computed.", StepBuckets());
  StepSizes steps_told;  // what step_tokens has of the engine's counts
};

Metrics::Metrics(const std::string& model_name, const MemoryPlan& plan,
                 std::function<void(const RequestReport&)> ended)
    : families_(std::make_unique<Families>(model_name, plan)), ended_(std::move(ended)) {}

Metrics::~Metrics() = default;

void Metrics::OnToken(std::optional<double> seconds_since_last) {
  families_->generation_tokens.Increment();
  if (seconds_since_last) families_->next_token.Observe(*seconds_since_last);
}

void Metrics::OnFirstToken(double seconds_since_arrival) {
  families_->first_token.Observe(seconds_since_arrival);
}

void Metrics::OnEnd(const RequestReport& report) {
  Families& f = *families_;
  prometheus::Labels labels = f.labels;
  labels["finished_reason"] = report.finish;
  f.finished.Add(labels).Increment();
  f.prompt_tokens.Increment(static_cast<double>(report.usage.prompt_tokens));
  f.cached_tokens.Increment(static_cast<double>(report.usage.cached_tokens));
  f.whole.Observe(report.total_seconds);
  f.request_prompt_tokens.Observe(static_cast<double>(report.usage.prompt_tokens));
  f.request_generation_tokens.Observe(static_cast<double>(report.usage.completion_tokens));
  f.request_n.Observe(report.n);
  f.request_max_tokens.Observe(report.max_tokens);
  if (report.fault == RowFault::kNan) f.corrupted.Increment();
  if (report.queue_seconds) f.queue.Observe(*report.queue_seconds);
  if (report.prefill_seconds) {
    f.prefill.Observe(*report.prefill_seconds);
    f.decode.Observe(report.decode_seconds);
    f.inference.Observe(*report.prefill_seconds + report.decode_seconds);
    if (report.usage.completion_tokens > 1) {
      const auto more = static_cast<double>(report.usage.completion_tokens - 1);
      f.per_token.Observe(report.decode_seconds / more);
    }
  }
  if (ended_) ended_(report);
}

std::string Metrics::Text(const EngineStatus& engine) {
  Families& f = *families_;
  f.running.Set(engine.scheduler.running);
  f.waiting.Set(engine.scheduler.waiting);
  f.kv_usage.Set(engine.kv_usage);
  // The engine counts from its start too.
  const auto raise = [](prometheus::Counter& counter, uint64_t to) {
    counter.Increment(std::max(0.0, static_cast<double>(to) - counter.Value()));
  };
  raise(f.preemptions, engine.scheduler.preemptions);
  raise(f.prefix_queries, engine.scheduler.prefix_query_tokens);
  raise(f.prefix_hits, engine.scheduler.prefix_hit_tokens);
  std::vector<double> steps;
  for (size_t i = 0; i < engine.steps.counts.size(); ++i) {
    steps.push_back(static_cast<double>(engine.steps.counts[i] - f.steps_told.counts[i]));
  }
  f.step_tokens.ObserveMultiple(steps,
                                static_cast<double>(engine.steps.tokens - f.steps_told.tokens));
  f.steps_told = engine.steps;
  return prometheus::TextSerializer().Serialize(f.registry.Collect());
}

}  // namespace spry
