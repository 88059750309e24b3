#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <set>

#include "base/clock.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/generation.h"
#include "tests/device/op_harness.h"
#include "tests/support/tiny_models.h"

namespace spry::testing {
namespace {

size_t CountTokens(const Generation& generation) {
  size_t count = 0;
  for (const auto& tokens : generation.tokens) count += tokens.size();
  return count;
}

std::string DistinctTokens(const Generation& generation) {
  std::set<int32_t> distinct;
  for (const auto& tokens : generation.tokens) {
    for (const TokenId token : tokens) distinct.insert(token.value());
  }
  return fmt::format("{} tokens, {} different ones", CountTokens(generation), distinct.size());
}

void ExpectSame(Report& report, const std::string& name, const Generation& expected,
                const Generation& found) {
  const std::string difference = Difference(expected, found);
  report.Expect(difference.empty(), name,
                difference.empty() ? "equal, " + DistinctTokens(found) : difference);
}

// ---- models ----

ModelConfig Opt125m() {
  ModelConfig config;
  config.architecture = "OPTForCausalLM";
  config.vocab_size = 50272;
  config.hidden_size = 768;
  config.intermediate_size = 3072;
  config.num_layers = 12;
  config.num_heads = config.num_kv_heads = 12;
  config.head_dim = 64;
  config.max_position = 2048;
  config.tied_embeddings = true;
  config.attention_bias = config.output_bias = config.mlp_bias = true;
  config.activation = "relu";
  config.word_embed_proj_dim = config.hidden_size;
  return config;
}

ModelConfig SmallLlama() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 8192;
  config.hidden_size = 512;
  config.intermediate_size = 1376;
  config.num_layers = 6;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.max_position = 2048;
  return config;
}

std::string NameOf(const ModelConfig& config) {
  return config.architecture + (config.do_layer_norm_before ? "" : " with post-norms");
}

// ---- traffic ----

GenerationRequest RandomRequest(Random& random, int64_t vocab_size) {
  GenerationRequest request;
  const int64_t length = 1 + random.Below(60);
  const int64_t kind = random.Below(4);  // prompts of one kind start alike
  for (int64_t i = 0; i < length; ++i) {
    const int64_t id = i < 20 ? kind * 20 + i : random.Below(vocab_size);
    request.prompt.emplace_back(static_cast<int32_t>(id));
  }
  SamplingParams& sampling = request.sampling;
  sampling.temperature = random.Below(2) == 0 ? 0.0 : 0.9;
  sampling.top_p = random.Below(2) == 0 ? 1.0 : 0.8;
  sampling.top_k = random.Below(2) == 0 ? 0 : 40;
  sampling.seed = random.Next();
  sampling.max_tokens = static_cast<int>(1 + random.Below(60));
  sampling.min_tokens = static_cast<int>(random.Below(sampling.max_tokens + 1));
  sampling.stop_token_ids = {TokenId(3), TokenId(77), TokenId(200)};
  if (random.Below(2) == 0) sampling.logprobs = 5;
  if (random.Below(3) == 0) {
    sampling.repetition_penalty = 1.3;
    sampling.frequency_penalty = 0.5;
    sampling.logit_bias = {{request.prompt[0], 4.0f}};
    sampling.bad_words = {{TokenId(5)}, {request.prompt[0], request.prompt[0]}};
  }
  return request;
}

// Few enough blocks that running requests push each other out.
constexpr int kTrafficBlocks = 36;
constexpr int kTrafficBlockSize = 8;

int64_t TrafficKvBytes(const ModelConfig& config) {
  const int64_t per_token = 2 * config.num_kv_heads * config.head_dim * config.num_layers;
  return RowBytes(DType::kF32, per_token * kTrafficBlockSize) * kTrafficBlocks;
}

Generation RunTraffic(std::unique_ptr<Device> device, const ModelConfig& config, int run_ahead) {
  const Checkpoint checkpoint = DummyCheckpoint(config);
  EngineOptions options;
  options.runner.memory = {.max_rows = 6,
                           .max_step_tokens = 48,
                           .max_model_len = 128,
                           .block_size = kTrafficBlockSize,
                           .kv_bytes = TrafficKvBytes(config),
                           .run_ahead = run_ahead};
  const auto engine = MakeEngine(std::move(device), checkpoint, options);
  Random random(/*seed=*/17);
  std::vector<GenerationRequest> requests;
  constexpr int kRequests = 60;
  for (int i = 0; i < kRequests; ++i) requests.push_back(RandomRequest(random, config.vocab_size));
  return Generate(*engine, requests, /*submit_every=*/3);
}

}  // namespace

namespace {

struct NamedGraphs {
  const char* name;
  GraphOptions options;
};

std::vector<NamedGraphs> AllGraphs() {
  return {{"none", {.mode = GraphMode::kNone}},
          {"piecewise", {.mode = GraphMode::kPiecewise}},
          {"full", {.mode = GraphMode::kFull}}};
}

// The same traffic in every mode and at every depth.
void CheckAllGraphs(Report& report, const std::string& name, const ModelConfig& config,
                    const Generation& expected) {
  std::vector<NamedGraphs> cases = AllGraphs();
  cases.push_back({"piecewise at other ops",
                   {.mode = GraphMode::kPiecewise,
                    .splitting_ops = {OpId::kStage, OpId::kLinear, OpId::kSample}}});
  for (const NamedGraphs& graphs : cases) {
    for (const int run_ahead : {1, 2, 8}) {
      ExpectSame(report, fmt::format("{}, graphs {}, run-ahead {}", name, graphs.name, run_ahead),
                 expected, RunTraffic(Cuda(graphs.options), config, run_ahead));
    }
  }
}

}  // namespace

void CheckTraffic(Report& report, const CheckOptions& options) {
  for (const ModelConfig& config : {TinyLlamaConfig(), TinyOptConfig(), TinyPostNormOptConfig()}) {
    const std::string name = NameOf(config) + " traffic";
    const Generation expected = RunTraffic(CpuReference(options.threads), config, /*run_ahead=*/1);
    report.Expect(expected.preemptions > 0, name,
                  fmt::format("{} preemptions on the CPU, {}", expected.preemptions,
                              DistinctTokens(expected)));
    CheckAllGraphs(report, name, config, expected);
  }
  // The kernels for 16-bit types, which the CPU does not follow to the bit.
  ModelConfig half = SmallLlama();
  half.dtype = DType::kBF16;
  const GraphOptions none{.mode = GraphMode::kNone};
  CheckAllGraphs(report, "bf16 traffic", half, RunTraffic(Cuda(none), half, /*run_ahead=*/1));
}

// ---- half precision ----

namespace {

std::vector<float> FirstLogits(std::unique_ptr<Device> device, const ModelConfig& config) {
  EngineOptions options;
  options.runner.memory = {.max_rows = 1, .max_step_tokens = 64, .max_model_len = 64};
  options.runner.memory.kv_bytes = 64 << 20;
  const auto engine = MakeEngine(std::move(device), DummyCheckpoint(config), options);
  GenerationRequest request;
  for (int i = 0; i < 40; ++i) request.prompt.emplace_back(i * 7 % 300);
  request.sampling.max_tokens = 1;
  Generate(*engine, {request}, /*submit_every=*/0);
  std::vector<float> logits(config.vocab_size);
  const Status status = engine->runner().CopyLogits(logits);
  CHECK(status.ok());
  return logits;
}

}  // namespace

void CheckHalfPrecision(Report& report, const CheckOptions& options) {
  for (ModelConfig config : {TinyLlamaConfig(), TinyOptConfig(), TinyPostNormOptConfig()}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      config.dtype = dtype;
      const std::vector<float> expected = FirstLogits(CpuReference(options.threads), config);
      const std::vector<float> found = FirstLogits(Cuda({.mode = GraphMode::kFull}), config);
      double error = 0.0;
      double size = 0.0;
      for (size_t i = 0; i < expected.size(); ++i) {
        error += std::pow(double{expected[i]} - double{found[i]}, 2);
        size += std::pow(double{expected[i]}, 2);
      }
      const double relative = std::sqrt(error / size);
      // A rounding to 8 (11) bits at each of some ten activations.
      const double allowed = dtype == DType::kBF16 ? 2e-2 : 2.5e-3;
      report.Expect(
          relative < allowed,  // false for NaN
          fmt::format("{} in {}", NameOf(config), Traits(dtype).name),
          fmt::format("logits off by {:.2e} of their size, allowed {:.1e}", relative, allowed));
    }
  }
}

// ---- draws ----

namespace {

// Rows that are greedy or have a temperature, which the last linear draws, unless a row with more
// parameters is among them: then the sampler draws all.
std::vector<GenerationRequest> PlainRequests(int count) {
  Random random(/*seed=*/21);
  std::vector<GenerationRequest> requests(count);
  for (GenerationRequest& request : requests) {
    for (int i = 0; i < 9; ++i)
      request.prompt.emplace_back(static_cast<int32_t>(random.Below(300)));
    request.sampling.temperature = random.Below(3) == 0 ? 0.0 : 0.2 + 0.1 * random.Below(15);
    request.sampling.seed = random.Next();
    request.sampling.max_tokens = 40;
    request.sampling.ignore_eos = true;
  }
  return requests;
}

Generation DrawAll(const ModelConfig& config, std::vector<GenerationRequest> requests) {
  EngineOptions options;
  options.runner.memory = {.max_rows = 320, .max_step_tokens = 640, .max_model_len = 64};
  options.runner.memory.kv_bytes = 64 << 20;
  const auto engine =
      MakeEngine(Cuda({.mode = GraphMode::kFull}), DummyCheckpoint(config), options);
  return Generate(*engine, requests, /*submit_every=*/0);
}

}  // namespace

namespace {

// The sampler draws all rows once one of them wants more than a temperature.
void ExpectSamplerDrawsTheSame(Report& report, const ModelConfig& config,
                               std::vector<GenerationRequest> requests, const Generation& plain) {
  const std::string what =
      fmt::format("{} in {}, {} rows drawn by the linear and by the sampler", config.architecture,
                  Traits(config.dtype).name, requests.size());
  requests.push_back(requests.back());
  requests.back().sampling.top_k = 5;
  Generation mixed = DrawAll(config, requests);
  mixed.tokens.pop_back();
  mixed.logprobs.pop_back();
  ExpectSame(report, what, mixed, plain);
}

}  // namespace

void CheckDraws(Report& report, const CheckOptions&) {
  for (ModelConfig config : {TinyLlamaConfig(), TinyOptConfig(), TinyPostNormOptConfig()}) {
    config.vocab_size = 20000;  // for few rows a kernel of its own
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      config.dtype = dtype;
      const Generation all = DrawAll(config, PlainRequests(40));
      for (const int count : {1, 7, 16, 30, 40}) {
        const Generation plain = DrawAll(config, PlainRequests(count));
        Generation first = all;
        first.tokens.resize(count);
        first.logprobs.resize(count);
        ExpectSame(report,
                   fmt::format("{} in {}, {} rows drawn alone and among 40", config.architecture,
                               Traits(dtype).name, count),
                   first, plain);
        ExpectSamplerDrawsTheSame(report, config, PlainRequests(count), plain);
      }
    }
  }
  // A width that warpgroup products serve: there the linear draws any number of rows.
  ModelConfig config = TinyOptConfig();
  config.dtype = DType::kF16;
  config.vocab_size = 20000;
  config.hidden_size = config.word_embed_proj_dim = 768;
  config.num_heads = config.num_kv_heads = 12;
  config.head_dim = 64;
  for (const int count : {30, 60, 300}) {
    ExpectSamplerDrawsTheSame(report, config, PlainRequests(count),
                              DrawAll(config, PlainRequests(count)));
  }
}

// ---- batches ----

namespace {

constexpr int kBatch = 8;
constexpr int kPromptTokens = 32;
constexpr int kOutputTokens = 128;

std::vector<GenerationRequest> Batch(int64_t vocab_size, uint64_t seed) {
  Random random(seed);
  std::vector<GenerationRequest> requests(kBatch);
  for (GenerationRequest& request : requests) {
    for (int i = 0; i < kPromptTokens; ++i) {
      request.prompt.emplace_back(static_cast<int32_t>(random.Below(vocab_size)));
    }
    request.sampling.temperature = 0.0;
    request.sampling.max_tokens = kOutputTokens;
    request.sampling.ignore_eos = true;
  }
  return requests;
}

std::unique_ptr<Engine> MakeModelEngine(std::unique_ptr<Device> device, const ModelConfig& config,
                                        int run_ahead) {
  EngineOptions options;
  options.runner.memory = {.max_rows = kBatch,
                           .max_step_tokens = kBatch * kPromptTokens,
                           .max_model_len = kPromptTokens + kOutputTokens,
                           .run_ahead = run_ahead};
  options.runner.memory.kv_bytes = int64_t{1} << 30;
  options.prefix_caching = false;  // the second batch costs what the first did
  return MakeEngine(std::move(device), DummyCheckpoint(config), options);
}

void ReportTimes(Report& report, const std::string& name, const Generation& generation,
                 const std::string& more) {
  const double milliseconds = generation.seconds * 1e3;
  report.Figure(name, fmt::format("{:.1f} ms for {} tokens each, {:.3f} ms a step; {}",
                                  milliseconds, kOutputTokens, milliseconds / kOutputTokens, more));
}

// A batch of 16-bit work in each mode.
void CheckHalfBatch(Report& report, const std::string& name, const ModelConfig& config) {
  const auto requests = Batch(config.vocab_size, /*seed=*/3);
  const auto other_requests = Batch(config.vocab_size, /*seed=*/4);
  std::optional<Generation> expected;
  for (const NamedGraphs& graphs : AllGraphs()) {
    const std::string case_name = fmt::format("{}, graphs {}", name, graphs.name);
    const auto engine = MakeModelEngine(Cuda(graphs.options), config, /*run_ahead=*/2);
    const Generation found = Generate(*engine, requests, /*submit_every=*/0);
    if (expected.has_value()) {
      ExpectSame(report, case_name, *expected, found);
    } else {
      expected = found;
    }
    ReportTimes(report, case_name, Generate(*engine, other_requests, /*submit_every=*/0),
                engine->runner().DeviceStats());
  }
}

// Every pair of buckets that a server of this size can meet, and what their graphs take.
void ReportGraphMemory(Report& report) {
  const ModelConfig config = Opt125m();
  const auto device = Cuda({.mode = GraphMode::kFull});
  auto engine_device = Cuda({.mode = GraphMode::kFull});
  const auto engine = MakeModelEngine(std::move(engine_device), config, /*run_ahead=*/2);
  const int64_t before = device->info().free_memory_bytes;
  Random random(/*seed=*/8);
  std::vector<GenerationRequest> requests;
  constexpr int kRequests = 80;
  for (int i = 0; i < kRequests; ++i) {
    GenerationRequest request;
    const int64_t length = 1 + random.Below(120);
    for (int64_t t = 0; t < length; ++t) {
      request.prompt.emplace_back(static_cast<int32_t>(random.Below(config.vocab_size)));
    }
    request.sampling.temperature = 0.0;
    request.sampling.max_tokens = static_cast<int>(1 + random.Below(30));
    requests.push_back(request);
  }
  Generate(*engine, requests, /*submit_every=*/2);
  report.Figure("graphs under mixed traffic",
                fmt::format("{}, {} KiB of the card", engine->runner().DeviceStats(),
                            (before - device->info().free_memory_bytes) / 1024));
}

}  // namespace

void CheckModels(Report& report, const CheckOptions& options) {
  for (const ModelConfig& config : {SmallLlama(), Opt125m()}) {
    const std::string name =
        fmt::format("{} {}x{}", config.architecture, config.num_layers, config.hidden_size);
    const auto requests = Batch(config.vocab_size, /*seed=*/3);
    const auto other_requests = Batch(config.vocab_size, /*seed=*/4);
    Generation expected;
    {
      const auto engine = MakeModelEngine(CpuReference(options.threads), config, /*run_ahead=*/1);
      expected = Generate(*engine, requests, /*submit_every=*/0);
    }
    report.Figure(name + " on the CPU reference",
                  fmt::format("{:.1f} s, {}", expected.seconds, DistinctTokens(expected)));
    for (const int run_ahead : {1, 2, 8}) {
      const SteadyClock clock;
      const int64_t begin = clock.NowNanos();
      const auto engine = MakeModelEngine(Cuda({.mode = GraphMode::kFull}), config, run_ahead);
      const double load_seconds = static_cast<double>(clock.NowNanos() - begin) * 1e-9;
      ExpectSame(report, fmt::format("{}, run-ahead {}", name, run_ahead), expected,
                 Generate(*engine, requests, /*submit_every=*/0));
      const std::string stats = engine->runner().DeviceStats();
      const Generation warm = Generate(*engine, other_requests, /*submit_every=*/0);
      ReportTimes(report, fmt::format("{}, run-ahead {}", name, run_ahead), warm,
                  fmt::format("{}; loaded in {:.2f} s", stats, load_seconds));
    }
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      ModelConfig half = config;
      half.dtype = dtype;
      CheckHalfBatch(report, fmt::format("{} in {}", name, Traits(dtype).name), half);
    }
    const auto engine = MakeModelEngine(Cuda({.mode = GraphMode::kNone}), config, /*run_ahead=*/2);
    ReportTimes(report, name + " without graphs",
                Generate(*engine, other_requests, /*submit_every=*/0),
                engine->runner().DeviceStats());
  }
  ReportGraphMemory(report);
}

}  // namespace spry::testing
