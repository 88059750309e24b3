#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/archs.h"
#include "device/cuda/error.h"
#include "device/cuda/executable.h"
#include "device/cuda/graphs.h"
#include "device/cuda/kernel.h"
#include "device/cuda/linear_mma.h"
#include "device/cuda/memory_plan.h"
#include "device/device.h"
#include "device/plugin.h"

namespace spry::cuda {
namespace {

// Compute capability of the first cards with programmatic dependent launch: Hopper.
constexpr int kFirstOverlapping = 9;

// Warpgroup products are in code for sm_90a, which runs on 9.0 alone.
bool HasWarpgroups(const cudaDeviceProp& properties) {
#ifdef SPRY_CUDA_SM90A
  return properties.major == 9 && properties.minor == 0;
#else
  (void)properties;
  return false;
#endif
}

double Attribute(cudaDeviceAttr attribute, int ordinal) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, ordinal) == cudaSuccess ? value : 0;
}

double PeakGbPerS(int ordinal) {
  constexpr double kTransfersPerClock = 2;
  const double kilohertz = Attribute(cudaDevAttrMemoryClockRate, ordinal);
  const double bytes = Attribute(cudaDevAttrGlobalMemoryBusWidth, ordinal) / 8;
  return kTransfersPerClock * kilohertz * bytes * 1e-6;
}

double PeakTflops(const cudaDeviceProp& properties, int ordinal) {
  // Additions and multiplications of 16-bit matrices a clock and multiprocessor.
  const double per_clock = properties.major == 9                            ? 4096
                           : properties.major == 8 && properties.minor == 0 ? 2048
                                                                            : 0;
  const double kilohertz = Attribute(cudaDevAttrClockRate, ordinal);
  return per_clock * kilohertz * properties.multiProcessorCount * 1e-9;
}

std::vector<OpId> DefaultSplittingOps(const Program& program) {
  std::vector<OpId> present;
  for (const OpId id : {OpId::kAttention, OpId::kWriteKv}) {
    const auto is_it = [id](const OpRecord& op) { return op.id == id; };
    if (std::ranges::any_of(program.ops, is_it)) present.push_back(id);
  }
  return present;
}

// The pieces that a step is launched in. Auto: the whole step in one graph, mixed steps too, since
// the grids of every kernel here are upper bounds.
Result<std::vector<Piece>> CutSteps(const Program& program, const GraphOptions& options,
                                    const AttentionBackend& attention) {
  const int num_ops = static_cast<int>(program.ops.size());
  if (options.mode == GraphMode::kNone) {
    return std::vector<Piece>{{.begin = 0, .end = num_ops, .splits = true}};
  }
  std::vector<OpId> splitting;
  if (options.mode == GraphMode::kPiecewise ||
      (options.mode == GraphMode::kAuto && !attention.capturable)) {
    splitting =
        options.splitting_ops.empty() ? DefaultSplittingOps(program) : options.splitting_ops;
  }
  if (!attention.capturable && std::ranges::find(splitting, OpId::kAttention) == splitting.end()) {
    return InvalidArgument(
        fmt::format("attention backend {} cannot be part of a graph; use --graph-mode piecewise "
                    "with attention among --splitting-ops",
                    attention.name));
  }
  return PartitionAt(program, splitting);
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const PluginOptions& options, const cudaDeviceProp& properties)
      : options_(options),
        properties_(properties),
        attention_{CudaLanesAttention(), CudaAttention(), CudaReferenceAttention()} {}

  std::string_view name() const override { return "cuda"; }

  DeviceInfo info() const override {
    size_t free_bytes = 0;
    size_t all_bytes = properties_.totalGlobalMem;
    if (cudaSetDevice(options_.ordinal) == cudaSuccess) {
      (void)cudaMemGetInfo(&free_bytes, &all_bytes);
    }
    return {.description =
                fmt::format("{}, {} multiprocessors, compute capability {}.{}", properties_.name,
                            properties_.multiProcessorCount, properties_.major, properties_.minor),
            .memory_bytes = static_cast<int64_t>(all_bytes),
            .free_memory_bytes = static_cast<int64_t>(free_bytes),
            .peak_gb_per_s = PeakGbPerS(options_.ordinal),
            .peak_tflops = PeakTflops(properties_, options_.ordinal)};
  }

  std::vector<AttentionBackend> attention_backends() const override {
    std::vector<AttentionBackend> facts;
    for (const CudaAttentionBackend& backend : attention_) facts.push_back(backend.facts);
    return facts;
  }

  DType ActivationDType(DType compute) const override { return compute; }
  Fusions fusions() const override {
    return {.norm_into_linear = true, .write_kv_into_attention = true, .rope_into_attention = true};
  }

  DeviceDefaults defaults() const override {
    return {.max_rows = 256, .max_step_tokens = 8192, .run_ahead = 2, .own_memory = true};
  }

  Result<MemoryNeeds> Plan(const Program& program, const CompileOptions& options) const override {
    SPRY_ASSIGN_OR_RETURN(const int attention, SelectAttention(program, options));
    SPRY_ASSIGN_OR_RETURN(const std::vector<Piece> pieces,
                          CutSteps(program, options_.graphs, attention_[attention].facts));
    MemoryNeeds needs =
        PlanMemory(program, options.limits, attention_[attention], HasWarpgroups(properties_))
            .needs();
    needs.graphs = MostGraphBytes(pieces);
    return needs;
  }

  Result<std::unique_ptr<Executable>> Compile(const Program& program,
                                              const CompileOptions& options) override {
    SPRY_ASSIGN_OR_RETURN(const int attention, SelectAttention(program, options));
    SPRY_ASSIGN_OR_RETURN(std::vector<Piece> pieces,
                          CutSteps(program, options_.graphs, attention_[attention].facts));
    return MakeCudaExecutable(
        program,
        PlanMemory(program, options.limits, attention_[attention], HasWarpgroups(properties_)),
        options,
        {.ordinal = options_.ordinal,
         .pieces = std::move(pieces),
         .processors = properties_.multiProcessorCount,
         .overlap = properties_.major >= kFirstOverlapping,
         .warpgroups = HasWarpgroups(properties_),
         .clusters = HasWarpgroups(properties_) ? CountStreamClusters() : 0,
         .attention = attention_[attention]});
  }

 private:
  Result<int> SelectAttention(const Program& program, const CompileOptions& options) const {
    return SelectAttentionBackend(attention_backends(),
                                  AttentionConfigOf(program, options.limits.block_size),
                                  options.attention_backend);
  }

  PluginOptions options_;
  cudaDeviceProp properties_;
  std::vector<CudaAttentionBackend> attention_;  // best first
};

// "13.0" of 13000.
std::string VersionName(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string TooOldDriver() {
  const std::string needed = VersionName(CUDART_VERSION);
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    return fmt::format("no driver was found; CUDA {} needs one", needed);
  }
  return fmt::format("the driver is for CUDA {}, and {} is needed; update the driver",
                     VersionName(version), needed);
}

// Why no card answers, and what helps.
Status NoCards(cudaError_t error) {
  const auto because = [error](std::string_view advice) {
    return Unavailable(fmt::format("{} (error {}); {}", cudaGetErrorString(error),
                                   static_cast<int>(error), advice));
  };
  switch (error) {
    case cudaErrorNoDevice: return Unavailable("this machine has no card that may be used");
    case cudaErrorInsufficientDriver: return Unavailable(TooOldDriver());
    case cudaErrorSystemNotReady:
      return because("the card's services still start, or have failed: nvidia-fabricmanager");
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return because("a restart loads the driver that is installed");
    case cudaErrorStubLibrary:
      return because("the toolkit's stub of libcuda.so was loaded; take it off LD_LIBRARY_PATH");
    default: return because("nvidia-smi may say more");
  }
}

Result<std::unique_ptr<Device>> MakeCudaDevice(const PluginOptions& options) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return NoCards(error);
  if (options.ordinal < 0 || options.ordinal >= count) {
    return Unavailable(
        fmt::format("card {} was asked for; this machine has {}", options.ordinal, count));
  }
  SPRY_RETURN_IF_CUDA_ERROR(cudaSetDevice(options.ordinal));
  cudaDeviceProp properties;
  SPRY_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, options.ordinal));
  if (!HasCodeFor(SPRY_CUDA_ARCHS, properties.major, properties.minor)) {
    return Unavailable(fmt::format(
        "{} has compute capability {}.{}, for which this build has no code; build it with "
        "SPRY_CUDA_ARCHS={}{}-real",
        properties.name, properties.major, properties.minor, properties.major, properties.minor));
  }
  if (!properties.canMapHostMemory) {
    return Unavailable(fmt::format("{} cannot map host memory", properties.name));
  }
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(options, properties));
}

}  // namespace
}  // namespace spry::cuda

// The plug-in's entry; see device/plugin.h.
extern "C" __attribute__((visibility("default"))) spry::Device* spry_make_device(
    uint32_t abi, const spry::PluginOptions* options, std::string* error) {
  if (abi != spry::kPluginAbi) {
    *error =
        fmt::format("it speaks plug-in version {}, the program {}; install both from one build",
                    spry::kPluginAbi, abi);
    return nullptr;
  }
  auto device = spry::cuda::MakeCudaDevice(*options);
  if (!device.ok()) {
    *error = device.status().message();
    return nullptr;
  }
  return (*std::move(device)).release();
}
