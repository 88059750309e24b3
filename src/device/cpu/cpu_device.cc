#include "device/cpu/cpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/cpu/cpu_executable.h"
#include "device/cpu/kernel_choice.h"
#include "device/cpu/machine.h"
#include "device/cpu/simd/packed_weight.h"

namespace spry {
namespace {

// Bytes of a part of a weight that `op` reads. Embedding tables keep the checkpoint's form, and so
// do matrices unless they are packed; small vectors and tables become f32.
int64_t PartBytes(const WeightHandle& part, const WeightRecord& weight, OpId op, DType compute,
                  bool packed) {
  const int64_t elements = part.shape.elements().value_or(0);
  const bool matrix = (op == OpId::kLinear || op == OpId::kEmbed) && weight.columns > 1;
  if (!matrix) return RowBytes(DType::kF32, elements);
  if (op == OpId::kEmbed || !packed) return RowBytes(part.dtype, elements);
  const int64_t rows = elements / weight.columns;
  return PanelBytes(FormOf(part.dtype, compute), weight.columns) * rows / kPanelRows;
}

int64_t WeightBytes(const Program& program, bool packed) {
  std::vector<bool> counted(program.weights.size());
  int64_t bytes = 0;
  for (const OpRecord& op : program.ops) {
    for (const WeightId id : op.weights) {
      if (counted[id.value()]) continue;
      counted[id.value()] = true;
      const WeightRecord& weight = program.weight(id);
      for (const WeightHandle& part : weight.parts) {
        bytes += PartBytes(part, weight, op.id, program.compute, packed);
      }
    }
  }
  return bytes;
}

class CpuDevice final : public Device {
 public:
  CpuDevice(std::shared_ptr<WorkerPool> pool, const KernelChoice& kernels)
      : pool_(std::move(pool)), kernels_(kernels) {}

  std::string_view name() const override { return "cpu"; }

  DeviceInfo info() const override {
    const MemoryInfo memory = ReadMemoryInfo(kMemInfo);
    const CgroupLimits limits = ReadCgroupLimits(kSelfCgroup, kCgroupRoot);
    const int64_t limit = limits.memory_bytes.value_or(memory.total_bytes);
    const int64_t left = limit - limits.memory_used_bytes.value_or(0);
    return {.description = fmt::format("{} thread{}, {} kernels", pool_->size(),
                                       pool_->size() == 1 ? "" : "s", kernels_.name),
            .memory_bytes = std::min(memory.total_bytes, limit),
            .free_memory_bytes = std::clamp<int64_t>(left, 0, memory.available_bytes)};
  }

  std::vector<AttentionBackend> attention_backends() const override {
    std::vector<AttentionBackend> backends;
    for (const CpuAttentionBackend& backend : kernels_.attention) backends.push_back(backend.facts);
    return backends;
  }

  DType ActivationDType(DType) const override { return DType::kF32; }
  Fusions fusions() const override { return {.gate_into_linear = kernels_.packs_weights}; }

  Result<MemoryNeeds> Plan(const Program& program, const CompileOptions& options) const override {
    SPRY_ASSIGN_OR_RETURN(const CpuAttentionBackend* attention, Select(program, options));
    MemoryNeeds needs;
    needs.weights = WeightBytes(program, kernels_.packs_weights);
    needs.activations =
        PlanBuffers(program, options.limits).arena_bytes + pool_->size() * kWorkerScratchBytes;
    needs.step = StepMemoryBytes(options.limits);
    for (const KvLayer& layer : program.kv_layers) {
      needs.kv_per_block += attention->bytes_per_block(layer, options.limits.block_size);
    }
    return needs;
  }

  Result<std::unique_ptr<Executable>> Compile(const Program& program,
                                              const CompileOptions& options) override {
    SPRY_ASSIGN_OR_RETURN(const CpuAttentionBackend* attention, Select(program, options));
    SPRY_ASSIGN_OR_RETURN(const MemoryNeeds needs, Plan(program, options));
    SPRY_RETURN_IF_ERROR(CheckAddressSpace(needs, options.limits.num_blocks));
    SPRY_ASSIGN_OR_RETURN(auto executable, CpuExecutable::Make(program, options.limits, pool_,
                                                               {.kernels = kernels_.table,
                                                                .attention = *attention,
                                                                .progress = options.progress}));
    return std::unique_ptr<Executable>(std::move(executable));
  }

 private:
  Result<const CpuAttentionBackend*> Select(const Program& program,
                                            const CompileOptions& options) const {
    SPRY_ASSIGN_OR_RETURN(
        const int index,
        SelectAttentionBackend(attention_backends(),
                               AttentionConfigOf(program, options.limits.block_size),
                               options.attention_backend));
    return &kernels_.attention[index];
  }

  static Status CheckAddressSpace(const MemoryNeeds& needs, int64_t num_blocks) {
    const int64_t kv = needs.kv_per_block * num_blocks;
    const int64_t total = needs.weights + needs.activations + needs.step + kv;
    if (MemoryRegion::Map(total, PageKind::kNormal).ok()) return {};
    return ResourceExhausted(
        fmt::format("the system refuses {} bytes of address space (weights {}, activations {}, "
                    "KV cache {}); lower --kv-cache-memory-bytes or the limit on virtual memory",
                    total, needs.weights, needs.activations, kv));
  }

  std::shared_ptr<WorkerPool> pool_;
  KernelChoice kernels_;
};

}  // namespace

int UsableCores() {
  const int cores = CountPhysicalCores(AllowedCpus(), kTopologyRoot);
  const CgroupLimits limits = ReadCgroupLimits(kSelfCgroup, kCgroupRoot);
  const int quota = static_cast<int>(std::min(limits.cpus.value_or(cores), 1.0 * cores));
  return std::max(quota, 1);
}

int ThreadsOrDefault(int threads) { return threads > 0 ? threads : UsableCores(); }

Result<std::unique_ptr<Device>> MakeCpuDevice(const CpuDeviceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidArgument(
        fmt::format("--threads is {}; it must be from 1 to {}; without it all usable cores compute",
                    options.threads, kMaxThreads));
  }
  SPRY_ASSIGN_OR_RETURN(const KernelChoice kernels,
                        ChooseKernels(options.isa, DetectCpuFeatures()));
  const int threads = ThreadsOrDefault(options.threads);
  SPRY_ASSIGN_OR_RETURN(std::shared_ptr<WorkerPool> pool, WorkerPool::Create(threads));
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(std::move(pool), kernels));
}

}  // namespace spry
