// What a program takes on the card, by arithmetic alone: the same numbers are reported by Plan and
// reserved by Compile.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/kernel.h"
#include "device/cuda/linear_mma.h"
#include "device/device.h"
#include "program/program.h"

namespace spry::cuda {

inline constexpr int64_t kDeviceAlignBytes = 256;  // of every array; what cudaMalloc gives

// On a cache line of their own: the card's counters, before the early slot and the step state, and
// the host's, before the rings (kernel.h).
inline constexpr int64_t kCounterBytes = kDeviceAlignBytes;

inline int64_t AlignDevice(int64_t bytes) {
  return (bytes + kDeviceAlignBytes - 1) / kDeviceAlignBytes * kDeviceAlignBytes;
}

// Where a weight lies in the weight region, and as what. Vectors (norms, biases) and rope tables
// stay f32; matrices are stored in the program's compute dtype, quantised ones too for now, so
// these take their dequantised size. A matrix used twice (tied embeddings) is stored once.
struct WeightPlacement {
  DType dtype = DType::kF32;
  int64_t offset = 0;
  bool shared = false;  // another weight's bytes; nothing to load
  bool tiled = false;   // weight_tiles.h
};

struct MemoryPlan {
  std::vector<WeightPlacement> weights;  // by WeightId
  int64_t weight_bytes = 0;
  BufferPlan buffers;
  int64_t state_bytes = 0;  // counters, early slot and step state on the card
  LogitsPlan logits;
  int64_t best_draws_bytes = 0;         // draw.h
  int64_t packed_row_bytes = 0;         // of the longest rows of a linear; twice
  int64_t attention_bytes = 0;          // scratch of the backend
  int64_t ring_bytes = 0;               // counter, slots and results in mapped host memory
  int64_t rule_image_bytes = 0;         // in mapped host memory, behind the rings
  std::vector<int64_t> kv_layer_bytes;  // per block, by LayerIdx
  int64_t kv_block_bytes = 0;           // sum of these

  MemoryNeeds needs() const;
};

MemoryPlan PlanMemory(const Program& program, const StepLimits& limits,
                      const CudaAttentionBackend& attention, bool warpgroups);

}  // namespace spry::cuda
