#include "app/flags.h"

#include <charconv>
#include <optional>

#include "app/flag_checks.h"

namespace spry {
namespace {

constexpr std::array<Choice<DeviceChoice>, 4> kDevices = {{{"auto", DeviceChoice::kAuto},
                                                           {"cpu", DeviceChoice::kCpu},
                                                           {"cuda", DeviceChoice::kCuda},
                                                           {"null", DeviceChoice::kNull}}};
constexpr std::array<Choice<GraphMode>, 4> kGraphModes = {{{"auto", GraphMode::kAuto},
                                                           {"none", GraphMode::kNone},
                                                           {"piecewise", GraphMode::kPiecewise},
                                                           {"full", GraphMode::kFull}}};
constexpr std::array<Choice<CpuIsa>, 5> kIsas = {{{"auto", CpuIsa::kAuto},
                                                  {"reference", CpuIsa::kReference},
                                                  {"avx2", CpuIsa::kAvx2},
                                                  {"avx512", CpuIsa::kAvx512},
                                                  {"amx", CpuIsa::kAmx}}};
constexpr std::array<Choice<SchedulingPolicy>, 2> kPolicies = {
    {{"fcfs", SchedulingPolicy::kFcfs}, {"priority", SchedulingPolicy::kPriority}}};
constexpr std::array<Choice<LoadFormat>, 2> kLoadFormats = {
    {{"auto", LoadFormat::kAuto}, {"dummy", LoadFormat::kDummy}}};
constexpr std::array<Choice<std::optional<DType>>, 3> kQuantizations = {
    {{"none", std::nullopt}, {"q4_0", DType::kQ4_0}, {"q8_0", DType::kQ8_0}}};
constexpr std::array<Choice<std::optional<DType>>, 4> kDTypes = {{{"auto", std::nullopt},
                                                                  {"float32", DType::kF32},
                                                                  {"bfloat16", DType::kBF16},
                                                                  {"float16", DType::kF16}}};

constexpr int64_t kMaxNullStepUs = 60'000'000;         // a minute
constexpr int kMinBlockSize = 8, kMaxBlockSize = 256;  // powers of two: see PlanMemory

void AddMemoryFlags(CLI::App& parser, MemoryOptions& memory) {
  const char* group = "Memory and batching";
  parser
      .add_option("--max-model-len", memory.max_model_len,
                  "Tokens of the longest sequence [the model's, or the largest that fits]")
      ->check(AtLeast(2))
      ->group(group);
  parser
      .add_option("--max-num-seqs", memory.max_rows, "Sequences in a step [64 on CPU, 256 on CUDA]")
      ->check(AtLeast(1))
      ->group(group);
  parser
      .add_option("--max-rule-slots", memory.max_rule_slots,
                  "Sequences at once that have penalties, biases or restrictions of tokens "
                  "[64, at most --max-num-seqs]")
      ->check(AtLeast(0))
      ->type_name("INT")
      ->group(group);
  parser
      .add_option("--max-num-batched-tokens", memory.max_step_tokens,
                  "Tokens in a step [512 on CPU, 8192 on CUDA]")
      ->check(AtLeast(1))
      ->group(group);
  const auto check_bytes = [](const std::string& text) {
    return ParseBytes(text).status().message();
  };
  const auto set_bytes = [&memory](const std::string& text) {
    memory.kv_bytes = *ParseBytes(text);
  };
  parser
      .add_option_function<std::string>(
          "--kv-cache-memory-bytes", set_bytes,
          "Bytes of the KV cache; K, M, G are binary [CPU: a quarter of free memory, at most "
          "what --max-num-seqs can use]")
      ->check(CLI::Validator(check_bytes, ""))
      ->type_name("BYTES")
      ->group(group);
  parser
      .add_option("--gpu-memory-utilization", memory.device_memory_share,
                  "Share of a card's memory to use [0.9]")
      ->check(Between(0.01, 1.0))
      ->group(group);
  parser
      .add_option("--block-size", memory.block_size,
                  "Tokens in a KV block: a power of two from 8 to 256 [16]")
      ->check(Between(kMinBlockSize, kMaxBlockSize))
      ->type_name("INT")
      ->group(group);
  parser
      .add_option("--run-ahead", memory.run_ahead,
                  "Steps in flight, up to 64 [1 on CPU, 2 on CUDA]")
      ->check(Between(1, 64))
      ->type_name("INT")
      ->group(group);
}

// Absent when no op has that name.
std::optional<OpId> FindOp(std::string_view name) {
  for (int i = 0; i < kNumOps; ++i) {
    if (OpName(static_cast<OpId>(i)) == name) return static_cast<OpId>(i);
  }
  return std::nullopt;
}

}  // namespace

Result<int64_t> ParseBytes(std::string_view text) {
  const char* form = "a number of bytes, or one with K, M or G behind it";
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view suffix = text.substr(end - text.data());
  const int shift = suffix.empty()  ? 0
                    : suffix == "K" ? 10
                    : suffix == "M" ? 20
                    : suffix == "G" ? 30
                                    : -1;
  if (error != std::errc() || shift < 0 || count < 1 || count > (INT64_MAX >> shift)) {
    return InvalidArgument(fmt::format("'{}' must be {}", text, form));
  }
  return count << shift;
}

void AddGraphFlags(CLI::App& parser, GraphOptions& graphs) {
  const char* group = "Device";
  AddChoice(parser, "--graph-mode", kGraphModes, graphs.mode,
            "CUDA graphs: the whole step in one, one between splitting ops, or none [auto: full]")
      ->group(group);
  const auto check = [](const std::string& text) {
    if (FindOp(text).has_value()) return std::string();
    std::vector<std::string_view> names;
    for (int i = 0; i < kNumOps; ++i) names.push_back(OpName(static_cast<OpId>(i)));
    return fmt::format("'{}' is no op; ops are {}", text, fmt::join(names, ", "));
  };
  const auto set = [&graphs](const std::vector<std::string>& names) {
    for (const std::string& name : names) graphs.splitting_ops.push_back(*FindOp(name));
  };
  parser
      .add_option_function<std::vector<std::string>>(
          "--splitting-ops", set,
          "Ops that --graph-mode piecewise launches between its graphs, named as `spry inspect "
          "--program` does [attention, and write_kv where it is an op of its own]")
      ->check(CLI::Validator(check, ""))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(group);
}

void AddThreadsFlag(CLI::App& parser, int& threads, const std::string& group) {
  parser
      .add_option("--threads", threads,
                  "Threads of the CPU device [the physical cores that may be used]")
      ->check(Between(1, kMaxThreads))
      ->type_name("INT")
      ->group(group);
}

void AddDeviceFlags(CLI::App& parser, DeviceFlags& flags) {
  const char* group = "Device";
  AddChoice(parser, "--device", kDevices, flags.device,
            "Where to compute; null computes nothing [auto: cuda where the plug-in and a card "
            "are found, else cpu]")
      ->group(group);
  AddThreadsFlag(parser, flags.cpu.threads, group);
  AddChoice(parser, "--isa", kIsas, flags.cpu.isa, "Instruction set of the CPU device [auto]")
      ->group(group);
  AddGraphFlags(parser, flags.graphs);
  parser
      .add_option("--null-step-us", flags.null_step_us,
                  "Microseconds that a step of the null device takes [0]")
      ->check(Between(int64_t{0}, kMaxNullStepUs))
      ->type_name("INT")
      ->group(group);
}

void AddEngineFlags(CLI::App& parser, EngineOptions& options) {
  const char* group = "Engine";
  AddChoice(parser, "--dtype", kDTypes, options.runner.compute,
            "Compute type [auto: the checkpoint's; bfloat16 for GGUF]")
      ->group(group);
  AddChoice(parser, "--kv-cache-dtype", kDTypes, options.runner.kv,
            "Type of the KV cache [auto: the compute type]")
      ->group(group);
  parser
      .add_option("--attention-backend", options.runner.attention_backend,
                  "One of `spry backends` [the best that serves the model]")
      ->type_name("NAME")
      ->group(group);
  parser
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.prefix_caching,
                "Share the KV blocks of equal prefixes [on]")
      ->group(group);
  parser
      .add_option("--long-prefill-token-threshold", options.long_prefill_threshold,
                  "Most prompt tokens of one request in a step; 0: no limit [0]")
      ->check(AtLeast(0))
      ->group(group);
  AddChoice(parser, "--scheduling-policy", kPolicies, options.policy,
            "Who runs first: who came first, or the lowest priority value [fcfs]")
      ->group(group);
  AddMemoryFlags(parser, options.runner.memory);
}

void AddModelFlags(CLI::App& parser, ModelFlags& flags) {
  parser
      .add_option("MODEL", flags.model,
                  "A Hugging Face folder, a .gguf file, or (dummy weights) a config.json")
      ->required()
      ->type_name("");
  const char* group = "Model";
  AddChoice(parser, "--load-format", kLoadFormats, flags.checkpoint.load_format,
            "dummy: random weights from a config.json alone [auto]")
      ->group(group);
  AddChoice(parser, "--quantization", kQuantizations, flags.checkpoint.quantization,
            "Quantise the matrices of folders and dummy weights while loading [none]")
      ->group(group);
  const auto set_seed = [&flags](const uint64_t& seed) {
    flags.seed = seed;
    flags.checkpoint.seed = seed;
    flags.engine.seed = seed;
  };
  const auto check_seed = [](const std::string& text) {
    uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error == std::errc() && end == text.data() + text.size()) return std::string();
    return fmt::format("'{}' must be a whole number from 0 to {}", text, UINT64_MAX);
  };
  parser
      .add_option_function<uint64_t>(
          "--seed", set_seed,
          "Seed of dummy weights, of benchmark prompts, and of requests that bring none, which "
          "generate and chat hand to each request [0]")
      ->check(CLI::Validator(check_seed, ""))
      ->type_name("UINT")
      ->group(group);
  AddEngineFlags(parser, flags.engine);
}

}  // namespace spry
