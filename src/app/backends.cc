// spry backends: the devices of this machine and what their attention backends can serve.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "app/command.h"
#include "app/devices.h"
#include "app/write_text.h"
#include "tensor/dtype.h"

namespace spry {
namespace {

std::string Names(const std::vector<DType>& dtypes) {
  std::vector<std::string_view> names;
  for (const DType dtype : dtypes) names.push_back(Traits(dtype).name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string Features(const AttentionBackend& backend) {
  std::vector<const char*> features;
  if (backend.window) features.push_back("window");
  if (backend.soft_cap) features.push_back("soft cap");
  if (backend.alibi) features.push_back("alibi");
  if (backend.sinks) features.push_back("sinks");
  if (backend.capturable) features.push_back("graph capture");
  return features.empty() ? "none" : fmt::format("{}", fmt::join(features, ", "));
}

std::string Describe(const AttentionBackend& backend) {
  return fmt::format(
      "  {}: {}\n    activations {}; KV {}; head sizes {}; block sizes {} to {}; features: {}\n",
      backend.name, backend.description, Names(backend.activations), Names(backend.kvs),
      backend.head_dims.empty() ? "any" : fmt::format("{}", fmt::join(backend.head_dims, " ")),
      backend.min_block_size, backend.max_block_size, Features(backend));
}

std::string Describe(const DeviceListing& listing) {
  if (!listing.device.ok()) {
    return fmt::format("{}: not available: {}\n", listing.name, listing.device.status().message());
  }
  const Device& device = **listing.device;
  const DeviceInfo info = device.info();
  std::string text =
      fmt::format("{}: {}; {} MiB of memory, {} MiB free\n", device.name(), info.description,
                  info.memory_bytes >> 20, info.free_memory_bytes >> 20);
  for (const AttentionBackend& backend : device.attention_backends()) text += Describe(backend);
  return text;
}

Result<int> RunBackends(const DeviceFlags& flags) {
  std::string text;
  for (const DeviceListing& listing : ListDevices(flags)) text += Describe(listing);
  SPRY_RETURN_IF_ERROR(WriteStdout(text));
  return kExitDone;
}

}  // namespace

Command AddBackends(CLI::App& parent) {
  CLI::App& parser =
      *parent.add_subcommand("backends", "List devices and attention backends, with capabilities");
  parser.footer(
      "Names under a device are what --attention-backend takes, best first.\n\n"
      "Example:\n  spry backends");
  return {.parser = &parser, .run = [] { return RunBackends({}); }};
}

}  // namespace spry
