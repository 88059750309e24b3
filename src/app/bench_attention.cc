// spry bench attention: the attention op by shape, on any device. Decode: rows of one token over a
// context; prefill: whole prompts. The op includes the write of the tokens' own keys and values.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "app/command.h"
#include "app/device_peaks.h"
#include "app/devices.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/op_timer.h"
#include "app/size_pair.h"
#include "app/write_text.h"
#include "ops/attention/attention.h"

namespace spry {
namespace {

constexpr int kMostKvCopies = 32;
constexpr double kMostFlops = 2e11;  // of a step of prefill, where one copy has less

constexpr std::array<Choice<DType>, 3> kTypes = {
    {{"float32", DType::kF32}, {"bfloat16", DType::kBF16}, {"float16", DType::kF16}}};

struct AttentionFlags {
  DeviceFlags device;
  DType dtype = DType::kBF16;
  DType kv = DType::kBF16;
  int heads = 32;
  int kv_heads = 8;
  int head_dim = 128;
  int block_size = 16;
  std::string backend;
  std::vector<SizePair> decode = {{1, 1024}, {8, 160}, {8, 1024}, {64, 1024}};
  std::vector<SizePair> prefill = {{1, 512}, {8, 512}};
  std::vector<double> peer_us;
};

// A step of `batch` rows, each with `tokens` tokens that end at `context`.
struct AttentionShape {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t context = 0;

  bool is_prefill() const { return tokens > 1; }
  double KvBytes(const AttentionFlags& flags) const {
    return static_cast<double>(batch * context * 2 *
                               RowBytes(flags.kv, int64_t{flags.kv_heads} * flags.head_dim));
  }
  // Two products over the positions that each token sees.
  double Flops(const AttentionFlags& flags) const {
    const double seen = static_cast<double>(tokens) *
                        (static_cast<double>(context) - 0.5 * static_cast<double>(tokens - 1));
    return 4.0 * static_cast<double>(batch) * seen * flags.heads * flags.head_dim;
  }
};

int Copies(const AttentionShape& shape, const AttentionFlags& flags) {
  const double wanted = shape.is_prefill() ? kMostFlops / shape.Flops(flags)
                                           : static_cast<double>(kColdBytes) / shape.KvBytes(flags);
  return static_cast<int>(std::clamp(std::ceil(wanted), 1.0, double{kMostKvCopies}));
}

Result<double> MeasureShape(Device& device, const AttentionFlags& flags,
                            const AttentionShape& shape) {
  const int64_t q_width = int64_t{flags.heads} * flags.head_dim;
  const int64_t kv_width = int64_t{flags.kv_heads} * flags.head_dim;
  const AttentionParams params{.num_heads = flags.heads,
                               .num_kv_heads = flags.kv_heads,
                               .head_dim = flags.head_dim,
                               .v_head_dim = flags.head_dim,
                               .scale = 1.0f / std::sqrt(static_cast<float>(flags.head_dim))};
  const TimedOp op{.trace = {.compute = flags.dtype,
                             .activation = device.ActivationDType(flags.dtype),
                             .kv = flags.kv,
                             .max_length = shape.context},
                   .input_width = q_width + 2 * kv_width,
                   .emit =
                       [&](Tracer& tracer, const Tensor& qkv, int) {
                         Attention(tracer, qkv.Columns(0, q_width), qkv.Columns(q_width, kv_width),
                                   qkv.Columns(q_width + kv_width, kv_width), params);
                       },
                   .copies = Copies(shape, flags)};
  const auto batch = static_cast<int32_t>(shape.batch);
  const auto row_blocks =
      static_cast<int32_t>((shape.context + flags.block_size - 1) / flags.block_size);
  const CompileOptions options{
      .limits = {.max_tokens = static_cast<int32_t>(shape.batch * shape.tokens),
                 .max_rows = batch,
                 .max_samples = batch,
                 .max_blocks_per_row = row_blocks,
                 .block_size = flags.block_size,
                 .num_blocks = batch * row_blocks},
      .attention_backend = flags.backend};
  SPRY_ASSIGN_OR_RETURN(OpTimer timer, OpTimer::Create(device, op, options));
  std::vector<RowBlocks> blocks;
  for (int32_t row = 0; row < batch; ++row) blocks.push_back({row * row_blocks, row_blocks});
  SPRY_RETURN_IF_ERROR(timer.Start(blocks));
  return timer.Measure(std::vector<TimedRow>(
      shape.batch, {.num_tokens = static_cast<int32_t>(shape.tokens),
                    .start = static_cast<int32_t>(shape.context - shape.tokens)}));
}

std::string Share(double value, double peak) {
  return peak == 0 ? "" : fmt::format(" {:5.1f}%", 100.0 * value / peak);
}

std::string ToLine(const AttentionFlags& flags, const AttentionShape& shape, double us,
                   const DevicePeaks& peaks, double peer_us) {
  const double gb_per_s = shape.KvBytes(flags) / us * 1e-3;
  const double tflops = shape.Flops(flags) / us * 1e-6;
  const std::string share = shape.is_prefill() ? Share(tflops, peaks.AttentionTflops(flags.kv))
                                               : Share(gb_per_s, peaks.gb_per_s);
  const std::string peer =
      peer_us == 0 ? "" : fmt::format("   peer {:9.2f} us, ours {:5.2f}x", peer_us, us / peer_us);
  return fmt::format("{:<8} {:>4} x {:<6} {:10.2f} us {:9.1f} GB/s {:9.2f} TFLOP/s{}{}\n",
                     shape.is_prefill() ? "prefill" : "decode", shape.batch, shape.context, us,
                     gb_per_s, tflops, share, peer);
}

Result<int> RunAttention(const AttentionFlags& flags) {
  std::vector<AttentionShape> shapes;
  for (const SizePair& p : flags.decode) shapes.push_back({p.first, 1, p.second});
  for (const SizePair& p : flags.prefill) shapes.push_back({p.first, p.second, p.second});
  if (!flags.peer_us.empty() && flags.peer_us.size() != shapes.size()) {
    return InvalidArgument(
        fmt::format("--peer-us has {} times for {} shapes (decode, then "
                    "prefill)",
                    flags.peer_us.size(), shapes.size()));
  }
  for (const AttentionShape& shape : shapes) {
    if (shape.batch * shape.context > INT32_MAX / 2) {
      return InvalidArgument(
          fmt::format("{}x{} is more tokens than a step counts", shape.batch, shape.context));
    }
  }
  SPRY_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(flags.device));
  SPRY_RETURN_IF_ERROR(WriteStdout(fmt::format(
      "attention on {} ({}): {}/{} heads of {}, {} with {} KV, blocks of {}; batch x context\n",
      device->name(), device->info().description, flags.heads, flags.kv_heads, flags.head_dim,
      Traits(flags.dtype).name, Traits(flags.kv).name, flags.block_size)));
  std::optional<DevicePeaks> peaks;  // takes seconds: not before a shape has shown that it runs
  for (size_t i = 0; i < shapes.size(); ++i) {
    SPRY_ASSIGN_OR_RETURN(const double us, MeasureShape(*device, flags, shapes[i]));
    if (!peaks) {
      SPRY_ASSIGN_OR_RETURN(peaks, PeaksOf(*device, flags.device));
    }
    const double peer_us = flags.peer_us.empty() ? 0 : flags.peer_us[i];
    SPRY_RETURN_IF_ERROR(WriteStdout(ToLine(flags, shapes[i], us, *peaks, peer_us)));
  }
  return kExitDone;
}

void AddShapeFlags(CLI::App& parser, AttentionFlags& flags) {
  const char* group = "Benchmark";
  constexpr int kMostHeads = 1024, kMostHeadDim = 1024;
  constexpr int kMinBlockSize = 8, kMaxBlockSize = 256;
  constexpr double kMostPeerUs = 1e9;
  AddSizePairs(parser, "--decode", flags.decode, "Rows x context [1x1024,8x160,8x1024,64x1024]")
      ->group(group);
  AddSizePairs(parser, "--prefill", flags.prefill, "Prompts x tokens [1x512,8x512]")->group(group);
  parser
      .add_flag_callback(
          "--no-prefill", [&flags] { flags.prefill.clear(); }, "Decode alone")
      ->group(group);
  parser.add_option("--heads", flags.heads, "Query heads [32]")
      ->check(Between(1, kMostHeads))
      ->group(group);
  parser.add_option("--kv-heads", flags.kv_heads, "KV heads [8]")
      ->check(Between(1, kMostHeads))
      ->group(group);
  parser.add_option("--head-dim", flags.head_dim, "Elements of a head [128]")
      ->check(Between(1, kMostHeadDim))
      ->group(group);
  parser.add_option("--block-size", flags.block_size, "Tokens in a KV block [16]")
      ->check(Between(kMinBlockSize, kMaxBlockSize))
      ->group(group);
  AddChoice(parser, "--dtype", kTypes, flags.dtype, "Compute type [bfloat16]")->group(group);
  AddChoice(parser, "--kv-cache-dtype", kTypes, flags.kv, "Type of the KV cache [bfloat16]")
      ->group(group);
  parser.add_option("--attention-backend", flags.backend, "One of `spry backends` [the best]")
      ->type_name("NAME")
      ->group(group);
  parser
      .add_option("--peer-us", flags.peer_us,
                  "Another implementation's microseconds, by shape, to print beside")
      ->check(Between(0.0, kMostPeerUs))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(group);
}

}  // namespace

Command AddBenchAttention(CLI::App& parent) {
  const auto flags = std::make_shared<AttentionFlags>();
  CLI::App& parser = *parent.add_subcommand("attention", "Time of the attention op by shape");
  parser.footer(
      "GB/s counts keys and values read; TFLOP/s the two products over visible positions. The\n"
      "share is of the memory's bandwidth for decode, of the most products for prefill: a card's\n"
      "nominal figures, or what `spry bench machine` measures.\n\n"
      "Example:\n  spry bench attention --device cuda --decode 1x16384,64x4096 --no-prefill");
  AddShapeFlags(parser, *flags);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags] { return RunAttention(*flags); }};
}

}  // namespace spry
