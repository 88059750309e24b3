// From flags to a model that is ready to run: checkpoint, device, engine, tokenizer. The tokenizer
// is built on a second thread while this one loads weights. Progress goes to stderr when that is a
// terminal; one line with the device and the memory that it takes goes there always.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/flags.h"
#include "base/status.h"
#include "checkpoint/model_config.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace spry {

struct LoadedModel {
  std::string device;  // its name and what it says of itself
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;  // null: the checkpoint has no vocabulary
  std::optional<ChatTemplateSource> chat_template;
  std::unique_ptr<Engine> engine;  // to be used by the thread that loaded
};

Result<LoadedModel> LoadModel(const DeviceFlags& device_flags, const ModelFlags& model_flags);

}  // namespace spry
