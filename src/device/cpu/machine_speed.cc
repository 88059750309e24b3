#include "device/cpu/machine_speed.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "device/cpu/memory_region.h"
#include "device/cpu/simd/speed_kernels.h"
#include "device/cpu/worker_pool.h"

namespace spry {
namespace {

constexpr int kTries = 20;
constexpr double kTrySeconds = 0.004;
constexpr int64_t kMemoryBytesEach = int64_t{64} << 20;  // more than a core's part of any cache
constexpr int64_t kMemoryBytes = int64_t{256} << 20;

// Work that each worker repeats by itself.
struct Task {
  void (*run)(const Task& task, int worker);
  int64_t repeats = 1;
  const ProductLoop* products = nullptr;
  ReadLoop read = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;  // of each worker, one after another
};

void MakeProducts(const Task& task, int) { task.products->run(task.repeats); }

void ReadPart(const Task& task, int worker) {
  for (int64_t i = 0; i < task.repeats; ++i) {
    task.read(task.from + worker * task.bytes, task.bytes);
  }
}

double Seconds(WorkerPool* pool, const Task& task) {
  const auto begin = std::chrono::steady_clock::now();
  if (pool == nullptr) {
    task.run(task, 0);
  } else {
    pool->Run(
        [](const void* context, Worker& worker) {
          const Task& each = *static_cast<const Task*>(context);
          each.run(each, worker.index());
        },
        &task);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Repeats a second of one worker. pool null: this thread alone.
double Rate(WorkerPool* pool, Task task) {
  // This thread alone finds how often: on a busy machine an empty run of the pool may take a try's
  // time.
  while (Seconds(nullptr, task) < kTrySeconds / 2) task.repeats *= 2;
  double seconds = Seconds(pool, task);  // also brings in what is read
  for (int i = 0; i < kTries; ++i) seconds = std::min(seconds, Seconds(pool, task));
  return static_cast<double>(task.repeats) / seconds;
}

std::vector<ProductLoop> ProductLoops(const CpuFeatures& features) {
  std::vector<ProductLoop> loops = {Avx2F32Products(), Avx2Int8Products()};
  if (features.avx512) loops.push_back(Avx512F32Products());
  if (features.avx512_bf16) loops.push_back(Avx512Bf16Products());
  if (features.avx512_vnni) loops.push_back(Avx512Int8Products());
  if (features.amx) {
    loops.push_back(AmxBf16Products());
    loops.push_back(AmxInt8Products());
  }
  return loops;
}

// A level of reads in the making: how much of it one thread, and each of all threads, goes through.
struct Place {
  std::string name;
  int64_t bytes_one;
  int64_t bytes_each;
};

// Half of a cache stays in it; where a share fits a nearer one it would not say anything.
std::vector<Place> Places(int threads, std::span<const CacheLevel> caches) {
  std::vector<Place> places;
  int64_t nearer = 0;
  for (const CacheLevel& cache : caches) {
    const int64_t one = cache.bytes / 2 / kReadStride * kReadStride;
    const int64_t each = one / std::min(threads, cache.sharers) / kReadStride * kReadStride;
    if (one > nearer) {
      places.push_back({cache.name, one, each > nearer ? each : 0});
    }
    nearer = cache.bytes;
  }
  places.push_back(
      {"memory", kMemoryBytes,
       std::max(kMemoryBytes / threads, kMemoryBytesEach) / kReadStride * kReadStride});
  return places;
}

}  // namespace

Result<MachineSpeed> MeasureMachine(int threads, const CpuFeatures& features) {
  SPRY_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerPool> pool, WorkerPool::Create(threads));
  const std::vector<Place> places = Places(threads, ReadCaches(kTopologyRoot));
  const int64_t bytes = std::max(kMemoryBytes, places.back().bytes_each * threads);
  SPRY_ASSIGN_OR_RETURN(const MemoryRegion region, MemoryRegion::Map(bytes, PageKind::kHuge));
  std::fill_n(region.data(), bytes, std::byte{1});  // untouched pages are all the same one

  MachineSpeed speed{.threads = threads};
  for (const Place& place : places) {
    Task task{.run = ReadPart,
              .read = features.avx512 ? ReadAvx512 : ReadAvx2,
              .from = region.data(),
              .bytes = place.bytes_one};
    ReadSpeed read{place.name, place.bytes_one, place.bytes_each};
    read.one_gb_per_s = Rate(nullptr, task) * static_cast<double>(place.bytes_one) * 1e-9;
    if (place.bytes_each > 0) {
      task.bytes = place.bytes_each;
      read.all_gb_per_s =
          Rate(pool.get(), task) * static_cast<double>(place.bytes_each) * threads * 1e-9;
    }
    speed.reads.push_back(std::move(read));
  }
  for (const ProductLoop& loop : ProductLoops(features)) {
    const Task task{.run = MakeProducts, .products = &loop};
    const double tera = 2e-12 * static_cast<double>(loop.multiply_adds);
    speed.products.push_back({.isa = loop.isa,
                              .type = loop.type,
                              .one_tops = Rate(nullptr, task) * tera,
                              .all_tops = Rate(pool.get(), task) * tera * threads});
  }
  return speed;
}

}  // namespace spry
