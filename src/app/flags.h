// The flags that several commands share, and the options that they become. Names and meanings are
// vLLM's where both have them. A wrong value is refused while parsing, naming flag and range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "device/cpu/cpu_device.h"
#include "device/graph_options.h"
#include "engine/engine.h"

namespace CLI {
class App;
}

namespace spry {

enum class DeviceChoice { kAuto, kCpu, kCuda, kNull };

struct DeviceFlags {
  DeviceChoice device = DeviceChoice::kAuto;
  int64_t null_step_us = 0;
  CpuDeviceOptions cpu;
  GraphOptions graphs;  // CUDA
};

struct ModelFlags {
  std::string model;
  std::optional<uint64_t> seed;  // as given; also in the two that follow
  CheckpointOptions checkpoint;
  EngineOptions engine;
};

void AddDeviceFlags(CLI::App& parser, DeviceFlags& flags);
// Parts of AddDeviceFlags.
void AddThreadsFlag(CLI::App& parser, int& threads, const std::string& group);
void AddGraphFlags(CLI::App& parser, GraphOptions& graphs);
// With the positional MODEL.
void AddModelFlags(CLI::App& parser, ModelFlags& flags);
// What sizes the engine, model or not; part of AddModelFlags.
void AddEngineFlags(CLI::App& parser, EngineOptions& options);

// "4096", "512M", "2G": bytes, with binary suffixes K, M, G.
Result<int64_t> ParseBytes(std::string_view text);

}  // namespace spry
