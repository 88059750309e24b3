// Brings a program's weights onto the card, one checkpoint tensor at a time, in the form that the
// memory plan gives each.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "device/cuda/memory_plan.h"
#include "device/device.h"
#include "program/program.h"

namespace spry::cuda {

// Fails when a tensor cannot be read or does not hold what its handle promised.
Status UploadWeights(const Program& program, const MemoryPlan& plan, std::byte* region,
                     const CompileOptions& options);

}  // namespace spry::cuda
