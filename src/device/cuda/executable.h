// A Program bound to one card: its memory, its launches and the graphs made of them. Made by
// CudaDevice::Compile; the engine thread alone calls it.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "device/cuda/kernel.h"
#include "device/cuda/memory_plan.h"
#include "device/device.h"
#include "program/partition.h"

namespace spry::cuda {

struct CudaExecutableOptions {
  int ordinal = 0;
  std::vector<Piece> pieces;  // how a step is launched; one that splits alone: without graphs
  int32_t processors = 1;     // multiprocessors of the card
  bool overlap = false;       // programmatic dependent launch
  bool warpgroups = false;    // products of warpgroup_mma.cuh
  int32_t clusters = 0;       // of linear_stream.cuh that run at once
  CudaAttentionBackend attention;
};

Result<std::unique_ptr<Executable>> MakeCudaExecutable(const Program& program, MemoryPlan plan,
                                                       const CompileOptions& compile,
                                                       const CudaExecutableOptions& options);

}  // namespace spry::cuda
