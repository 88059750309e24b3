// spry bench gemm: the linear op by shape and number of rows, on any device. Every shape has enough
// copies of its weight that a step finds them in memory, not in a cache.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "app/command.h"
#include "app/device_peaks.h"
#include "app/devices.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/op_timer.h"
#include "app/size_pair.h"
#include "app/write_text.h"
#include "ops/linear.h"

namespace spry {
namespace {

constexpr int kMostWeightCopies = 1024;
constexpr int kMostRows = 1 << 16;

constexpr std::array<Choice<DType>, 3> kComputeTypes = {
    {{"float32", DType::kF32}, {"bfloat16", DType::kBF16}, {"float16", DType::kF16}}};
constexpr std::array<Choice<DType>, 7> kWeightTypes = {{{"float32", DType::kF32},
                                                        {"bfloat16", DType::kBF16},
                                                        {"float16", DType::kF16},
                                                        {"q4_0", DType::kQ4_0},
                                                        {"q4_1", DType::kQ4_1},
                                                        {"q8_0", DType::kQ8_0},
                                                        {"q4_k", DType::kQ4_K}}};

struct GemmFlags {
  DeviceFlags device;
  DType compute = DType::kBF16;
  DType weight = DType::kBF16;
  // opt-125m: qkv, o, fc1, fc2, lm_head; Llama-3.1-8B: gate and up, down.
  std::vector<SizePair> shapes = {{2304, 768},  {768, 768},    {3072, 768},  {768, 3072},
                                  {50272, 768}, {28672, 4096}, {4096, 14336}};
  std::vector<int> rows = {1, 8, 64, 512};
};

// Bytes that are finite numbers in every dtype (no exponent of all ones).
std::shared_ptr<const std::vector<std::byte>> WeightBytes(int64_t count) {
  auto bytes = std::make_shared<std::vector<std::byte>>(count);
  std::mt19937_64 random(1);
  constexpr int64_t kPiece = 1 << 20;  // repeated
  for (int64_t i = 0; i < count; ++i) {
    (*bytes)[i] = i < kPiece ? static_cast<std::byte>(random() & 0x37) : (*bytes)[i - kPiece];
  }
  return bytes;
}

// Weights of other names are other weights, though they read the same bytes.
WeightHandle Handle(int copy, DType dtype, const Shape& shape,
                    std::shared_ptr<const std::vector<std::byte>> bytes) {
  return {.name = fmt::format("weight {}", copy),
          .dtype = dtype,
          .shape = shape,
          .read = [dtype, shape, bytes = std::move(bytes)]() -> Result<HostTensor> {
            return HostTensor{.dtype = dtype, .shape = shape, .data = *bytes, .owner = bytes};
          }};
}

int64_t WeightBytesOf(const GemmFlags& flags, const SizePair& shape) {
  return shape.first * RowBytes(flags.weight, shape.second);
}

std::string ToLine(const GemmFlags& flags, const DevicePeaks& peaks, const SizePair& shape,
                   int rows, double us) {
  const double gb_per_s = static_cast<double>(WeightBytesOf(flags, shape)) / us * 1e-3;
  const double tflops = 2.0 * rows * static_cast<double>(shape.first * shape.second) / us * 1e-6;
  std::string share;
  const double peak_tflops = peaks.TflopsFor(flags.weight);
  if (peaks.gb_per_s > 0 && peak_tflops > 0) {
    const double memory = gb_per_s / peaks.gb_per_s;
    const double products = tflops / peak_tflops;
    share = fmt::format("  {:5.1f}% of {}", 100.0 * std::max(memory, products),
                        memory > products ? "memory" : "products");
  }
  return fmt::format("{:>6} x {:<6} M {:<6} {:10.2f} us {:9.1f} GB/s {:9.2f} TFLOP/s{}\n",
                     shape.first, shape.second, rows, us, gb_per_s, tflops, share);
}

Status MeasureShape(Device& device, const GemmFlags& flags, const SizePair& size,
                    std::optional<DevicePeaks>& peaks) {
  const int64_t bytes = WeightBytesOf(flags, size);
  const Shape shape{size.first, size.second};
  const auto weight_bytes = WeightBytes(bytes);
  const TimedOp op{
      .trace = {.compute = flags.compute, .activation = device.ActivationDType(flags.compute)},
      .input_width = size.second,
      .emit =
          [&](Tracer& tracer, const Tensor& x, int copy) {
            const WeightHandle weight = Handle(copy, flags.weight, shape, weight_bytes);
            Linear(tracer, x, {&weight, 1}, {}, {});
          },
      .copies = static_cast<int>(
          std::clamp<int64_t>((kColdBytes + bytes - 1) / bytes, 1, kMostWeightCopies))};
  const int most_rows = std::ranges::max(flags.rows);
  SPRY_ASSIGN_OR_RETURN(
      OpTimer timer,
      OpTimer::Create(
          device, op,
          {.limits = {.max_tokens = most_rows, .max_rows = most_rows, .max_samples = most_rows}}));
  SPRY_RETURN_IF_ERROR(timer.Start(std::vector<RowBlocks>(most_rows)));
  for (const int rows : flags.rows) {
    SPRY_ASSIGN_OR_RETURN(const double us, timer.Measure(std::vector<TimedRow>(rows)));
    if (!peaks) {
      SPRY_ASSIGN_OR_RETURN(peaks, PeaksOf(device, flags.device));
    }
    SPRY_RETURN_IF_ERROR(WriteStdout(ToLine(flags, *peaks, size, rows, us)));
  }
  return {};
}

Result<int> RunGemm(const GemmFlags& flags) {
  for (const SizePair& shape : flags.shapes) {
    const int block = Traits(flags.weight).block_elements;
    if (shape.second % block != 0) {
      return InvalidArgument(fmt::format("--shapes has K = {}; {} weights need a multiple of {}",
                                         shape.second, Traits(flags.weight).name, block));
    }
  }
  SPRY_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(flags.device));
  SPRY_RETURN_IF_ERROR(WriteStdout(fmt::format(
      "linear on {} ({}): {} weights, {}; N x K\n", device->name(), device->info().description,
      Traits(flags.weight).name, Traits(flags.compute).name)));
  std::optional<DevicePeaks> peaks;  // takes seconds: not before a shape has shown that it runs
  for (const SizePair& shape : flags.shapes) {
    SPRY_RETURN_IF_ERROR(MeasureShape(*device, flags, shape, peaks));
  }
  return kExitDone;
}

}  // namespace

Command AddBenchGemm(CLI::App& parent) {
  const auto flags = std::make_shared<GemmFlags>();
  CLI::App& parser = *parent.add_subcommand("gemm", "Time of the linear op by shape and rows");
  parser.footer(
      "GB/s counts the weight as stored; TFLOP/s is 2 M N K. The share is of the\n"
      "memory's bandwidth or of the most products that can be made, whichever is larger: a card's\n"
      "nominal figures, or what `spry bench machine` measures.\n\n"
      "Example:\n  spry bench gemm --device cuda --shapes 28672x4096 --rows 1,64,128");
  const char* group = "Benchmark";
  AddSizePairs(parser, "--shapes", flags->shapes,
               "N x K of the weights [those of opt-125m, and two of Llama-3.1-8B]")
      ->group(group);
  parser.add_option("--rows", flags->rows, "Rows of the input [1,8,64,512]")
      ->check(Between(1, kMostRows))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(group);
  AddChoice(parser, "--dtype", kComputeTypes, flags->compute, "Compute type [bfloat16]")
      ->group(group);
  AddChoice(parser, "--weights", kWeightTypes, flags->weight, "Type of the weights [bfloat16]")
      ->group(group);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags] { return RunGemm(*flags); }};
}

}  // namespace spry
