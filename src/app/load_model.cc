#include "app/load_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <string>
#include <utility>

#include "app/devices.h"
#include "app/write_text.h"

namespace spry {
namespace {

// A percentage on one line of a terminal, rewritten as it grows and wiped at the end.
class LoadProgress {
 public:
  LoadProgress() : shown_(isatty(STDERR_FILENO) != 0) {}
  ~LoadProgress() {
    if (last_percent_ >= 0) WriteStderr("\r\x1b[K");
  }
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;

  void Update(int64_t done_bytes, int64_t total_bytes) {
    if (!shown_ || total_bytes <= 0) return;
    const int percent = static_cast<int>(100.0 * static_cast<double>(done_bytes) /
                                         static_cast<double>(total_bytes));
    if (percent == last_percent_) return;
    last_percent_ = percent;
    WriteStderr(fmt::format("\rloading weights: {:3}% of {} MiB", percent, total_bytes >> 20));
  }

 private:
  bool shown_;
  int last_percent_ = -1;
};

using TokenizerResult = Result<std::unique_ptr<Tokenizer>>;

std::future<TokenizerResult> BuildTokenizer(std::shared_ptr<const VocabSource> vocab) {
  // Deferred where the system refuses a thread.
  return std::async(std::launch::async | std::launch::deferred,
                    [vocab = std::move(vocab)]() -> TokenizerResult {
                      if (vocab == nullptr) return std::unique_ptr<Tokenizer>();
                      return Tokenizer::Create(*vocab);
                    });
}

}  // namespace

Result<LoadedModel> LoadModel(const DeviceFlags& device_flags, const ModelFlags& model_flags) {
  SPRY_ASSIGN_OR_RETURN(Checkpoint checkpoint,
                        OpenCheckpoint(model_flags.model, model_flags.checkpoint));
  std::optional<ChatTemplateSource> chat_template;
  if (checkpoint.vocab != nullptr) chat_template = ChatTemplateOf(*checkpoint.vocab);
  std::future<TokenizerResult> tokenizer = BuildTokenizer(std::move(checkpoint.vocab));
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice(device_flags));

  LoadedModel model;
  model.device = fmt::format("{} ({})", device->name(), device->info().description);
  model.chat_template = std::move(chat_template);
  {
    LoadProgress progress;
    EngineOptions options = model_flags.engine;
    options.runner.progress = [&progress](int64_t done, int64_t total) {
      progress.Update(done, total);
    };
    SPRY_ASSIGN_OR_RETURN(model.engine, Engine::Create(std::move(device), checkpoint, options));
  }
  SPRY_ASSIGN_OR_RETURN(model.tokenizer, tokenizer.get());
  model.config = std::move(checkpoint.config);
  WriteStderr(fmt::format("{}: {}\n", model.device, model.engine->memory_plan().Summary()));
  const std::string stats = model.engine->runner().DeviceStats();
  if (!stats.empty()) WriteStderr(fmt::format("graphs: {}\n", stats));
  return model;
}

}  // namespace spry
