#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/file_listed.h"
#include "checkpoint/dummy_weights.h"
#include "checkpoint/file_weights.h"
#include "checkpoint/ggml_types.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/gguf_split.h"
#include "checkpoint/gguf_vocab.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/quantized_weights.h"
#include "checkpoint/weight_folder.h"
#include "text/tokenizer_files.h"

namespace spry {
namespace {

namespace fs = std::filesystem;

// Ids that the vocabulary holds to end generation, where the model has a row for them.
void AddEosTokensOf(const VocabSource& vocab, ModelConfig& config) {
  const auto add = [&](TokenId id) {
    if (id.value() >= 0 && id.value() < config.vocab_size) AddEosToken(id, config);
  };
  if (vocab.eos) add(*vocab.eos);
  for (const TokenId id : vocab.end_of_turn) add(id);
}

// A folder of GGUF files is a likely mistake.
Status LacksConfig(const fs::path& folder) {
  std::string instead;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".gguf") continue;
    instead = fmt::format("; it holds {}: name that file", entry.path().filename().string());
    break;
  }
  return NotFound(fmt::format("{}: it has no config.json, as a Hugging Face folder must{}",
                              folder.string(), instead));
}

// All of a Hugging Face folder but its weights.
Result<Checkpoint> OpenFolder(const fs::path& folder) {
  if (!IsListed(folder / "config.json")) return LacksConfig(folder);
  Checkpoint checkpoint;
  SPRY_ASSIGN_OR_RETURN(checkpoint.config, ReadHfConfig(folder / "config.json"));
  SPRY_RETURN_IF_ERROR(AddGenerationConfig(folder / "generation_config.json", checkpoint.config));
  SPRY_ASSIGN_OR_RETURN(std::optional<VocabSource> vocab, ReadTokenizerFiles(folder));
  if (vocab) {
    AddEosTokensOf(*vocab, checkpoint.config);
    checkpoint.vocab = std::make_shared<const VocabSource>(*std::move(vocab));
  }
  return checkpoint;
}

constexpr std::string_view kOptDecoderParts[] = {"embed_tokens.", "embed_positions.",
                                                 "layers.",       "project_in.",
                                                 "project_out.",  "final_layer_norm."};

// OPT checkpoints saved from an inner module lack the outer "model." (opt-350m as it was published)
// or "model.decoder.".
void CompleteOptNames(std::vector<FileTensor>& tensors) {
  for (FileTensor& tensor : tensors) {
    if (tensor.name.starts_with("decoder.")) tensor.name.insert(0, "model.");
    const auto begins = [&](std::string_view part) { return tensor.name.starts_with(part); };
    if (std::ranges::any_of(kOptDecoderParts, begins)) tensor.name.insert(0, "model.decoder.");
  }
}

Result<Checkpoint> OpenHuggingFace(const fs::path& folder) {
  SPRY_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenFolder(folder));
  SPRY_ASSIGN_OR_RETURN(WeightFolder files, ReadWeightFolder(folder));
  checkpoint.format = files.format;
  if (checkpoint.config.architecture == "OPTForCausalLM") CompleteOptNames(files.tensors);
  SPRY_ASSIGN_OR_RETURN(checkpoint.weights,
                        MakeFileWeights({.source = folder.string(),
                                         .supported_types = files.supported_types,
                                         .tensors = std::move(files.tensors)}));
  return checkpoint;
}

Result<Checkpoint> OpenDummy(const fs::path& folder, uint64_t seed) {
  SPRY_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenFolder(folder));
  checkpoint.format = "dummy";
  checkpoint.weights = MakeDummyWeights(checkpoint.config.dtype, seed);
  return checkpoint;
}

Result<Checkpoint> OpenGguf(const fs::path& path) {
  SPRY_ASSIGN_OR_RETURN(GgufFile file, ReadGgufModel(path));
  Checkpoint checkpoint;
  checkpoint.format = "gguf";
  SPRY_ASSIGN_OR_RETURN(checkpoint.config, GgufConfig(file));
  SPRY_ASSIGN_OR_RETURN(VocabSource vocab, GgufVocab(file.metadata));
  ModelConfig& config = checkpoint.config;
  if (static_cast<int64_t>(vocab.pieces.size()) > config.vocab_size) {
    return InvalidArgument(fmt::format("{}: {} tokens, but tensor 'token_embd.weight' has {} rows",
                                       path.string(), vocab.pieces.size(), config.vocab_size));
  }
  config.bos_token = vocab.bos;
  AddEosTokensOf(vocab, config);
  checkpoint.vocab = std::make_shared<const VocabSource>(std::move(vocab));
  for (FileTensor& tensor : file.tensors) tensor.name = HuggingFaceName(tensor.name);
  SPRY_ASSIGN_OR_RETURN(checkpoint.weights, MakeFileWeights({.source = path.string(),
                                                             .supported_types = kGgmlTypesServed,
                                                             .tensors = std::move(file.tensors)}));
  // The vocabulary has been copied out of the head of the (first) file.
  file.file->GiveBack(
      0, static_cast<size_t>(std::min<uint64_t>(file.data_start, file.file->bytes().size())));
  return checkpoint;
}

// Computes in bfloat16 where the checkpoint is float32, as with GGUF: float32 would undo it.
Checkpoint Quantize(Checkpoint checkpoint, DType dtype) {
  checkpoint.weights = MakeQuantizedWeights(std::move(checkpoint.weights), dtype);
  if (checkpoint.config.dtype == DType::kF32) checkpoint.config.dtype = DType::kBF16;
  return checkpoint;
}

Result<Checkpoint> OpenAsStored(const fs::path& path, const CheckpointOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return NotFound(fmt::format("{}: {}; expected a model folder, a .gguf file or a config.json",
                                path.string(), error ? error.message() : "does not exist"));
  }
  const bool is_folder = fs::is_directory(status);
  if (options.load_format == LoadFormat::kDummy) {
    if (!is_folder && path.filename() != "config.json") {
      return InvalidArgument(fmt::format(
          "{}: dummy weights need a config.json or the folder that has it", path.string()));
    }
    return OpenDummy(is_folder ? path : path.parent_path(), options.seed);
  }
  if (is_folder) return OpenHuggingFace(path);
  if (path.extension() == ".gguf") return OpenGguf(path);
  return InvalidArgument(
      fmt::format("{}: expected a model folder or a .gguf file; "
                  "a config.json alone goes with --load-format dummy",
                  path.string()));
}

}  // namespace

Result<Checkpoint> OpenCheckpoint(const fs::path& path, const CheckpointOptions& options) {
  SPRY_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenAsStored(path, options));
  if (!options.quantization) return checkpoint;
  if (checkpoint.format == "gguf") {
    return InvalidArgument(
        fmt::format("{}: --quantization is for folders and dummy weights; the tensors of a "
                    "GGUF file keep the types that they have",
                    path.string()));
  }
  return Quantize(std::move(checkpoint), *options.quantization);
}

}  // namespace spry
