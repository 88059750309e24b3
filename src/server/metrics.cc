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
  Families(const std::string& model_name, int64_t max_model_len)
      : labels{{"model_name", model_name}, {"engine", "0"}},
        finished(prometheus::BuildCounter()
                     .Name("vllm:request_success_total")
                     .Help("Requests that ended, by finished_reason.")
                     .Register(registry)),
        tokens(TokenBuckets(max_model_len)) {}

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
                "From the first token to the end, by token after the first.", NextTokenBuckets());
  prometheus::Histogram& whole =
      Histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", RequestBuckets());
  prometheus::Histogram& decode = Histogram("vllm:request_decode_time_seconds",
                                            "From the first token to the end.", RequestBuckets());
  prometheus::Histogram& request_prompt_tokens =
      Histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", tokens);
  prometheus::Histogram& request_generation_tokens =
      Histogram("vllm:request_generation_tokens", "Tokens generated for a request.", tokens);
  prometheus::Histogram& request_n =
      Histogram("vllm:request_params_n", "Choices asked for.", {1, 2, 5, 10, 20});
  prometheus::Histogram& request_max_tokens =
      Histogram("vllm:request_params_max_tokens", "max_tokens of a request.", tokens);
};

Metrics::Metrics(const std::string& model_name, int64_t max_model_len,
                 std::function<void(const RequestReport&)> ended)
    : families_(std::make_unique<Families>(model_name, max_model_len)), ended_(std::move(ended)) {}

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
  if (report.first_token_seconds) {
    const double decode = report.total_seconds - *report.first_token_seconds;
    f.decode.Observe(decode);
    if (report.usage.completion_tokens > 1) {
      f.per_token.Observe(decode / static_cast<double>(report.usage.completion_tokens - 1));
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
  return prometheus::TextSerializer().Serialize(f.registry.Collect());
}

}  // namespace spry
