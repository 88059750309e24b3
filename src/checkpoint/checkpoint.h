// Opens a model on disk: a Hugging Face folder, a .gguf file, or (dummy) a config.json alone.
// Everything is mapped, not read; what a file claims about sizes is checked against the file before
// it is used. Errors name the file, the offset or field, what was found and what was expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/model_config.h"
#include "tensor/host_tensor.h"
#include "text/vocab_source.h"

namespace spry {

enum class LoadFormat { kAuto, kDummy };

struct CheckpointOptions {
  LoadFormat load_format = LoadFormat::kAuto;
  uint64_t seed = 0;  // of dummy weights
  // q4_0 or q8_0: matrices of a folder's and of dummy weights are quantised as they are read.
  std::optional<DType> quantization;
};

// The weights by Hugging Face name ("model.layers.0.self_attn.q_proj.weight"), whatever the file.
class Weights {
 public:
  virtual ~Weights() = default;

  virtual bool Has(std::string_view name) const = 0;
  // The weight, when it is there with this shape; else an error with both shapes. Reads nothing.
  virtual Result<WeightHandle> Get(std::string_view name, const Shape& expected) const = 0;
  // All that the file holds, in file order (dummy: nothing, since any name and shape is served).
  virtual std::vector<WeightHandle> List() const = 0;
};

struct Checkpoint {
  std::string format;  // "safetensors", "pytorch", "gguf", "dummy"
  ModelConfig config;
  std::shared_ptr<const Weights> weights;
  // The vocabulary, not yet built into a tokenizer; empty for dummy models without one.
  std::shared_ptr<const VocabSource> vocab;
};

Result<Checkpoint> OpenCheckpoint(const std::filesystem::path& path,
                                  const CheckpointOptions& options);

}  // namespace spry
