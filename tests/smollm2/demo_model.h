// The demo model: SPRY_DEMO_MODEL, or where tools/setup_model.py puts it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "checkpoint/checkpoint.h"

namespace spry {

inline std::string DemoModelFile() {
  if (const char* file = std::getenv("SPRY_DEMO_MODEL")) return file;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder =
      cache != nullptr ? cache : std::filesystem::path(home != nullptr ? home : "") / ".cache";
  return folder / "spry/SmolLM2-135M-Instruct.Q4_1.gguf";
}

inline const Checkpoint& DemoModel() {
  static const Checkpoint model = [] {
    auto checkpoint = OpenCheckpoint(DemoModelFile(), {});
    if (!checkpoint.ok()) {
      std::fprintf(stderr, "%s (tools/setup_model.py fetches the demo model)\n",
                   checkpoint.status().message().c_str());
    }
    CHECK(checkpoint.ok());
    return *std::move(checkpoint);
  }();
  return model;
}

}  // namespace spry
