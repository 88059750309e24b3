#include "checkpoint/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "checkpoint/config_limits.h"
#include "checkpoint/printable.h"

namespace spry {
namespace {

constexpr IntegerRange kAnyCount = {0, (int64_t{1} << 31) - 1};
constexpr double kDefaultRopeTheta = 10000.0;  // llama.cpp's, where the key is absent
constexpr std::string_view kLayerPrefix = "blk.";

struct NamePair {
  std::string_view gguf;
  std::string_view hugging_face;
};

constexpr NamePair kModelNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

constexpr NamePair kLayerNames[] = {
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"attn_norm", "input_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
};

const NamePair* FindName(std::span<const NamePair> names, std::string_view gguf) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const NamePair& pair) { return pair.gguf == gguf; });
  return found == names.end() ? nullptr : &*found;
}

const FileTensor* FindTensor(const GgufFile& file, std::string_view name) {
  const auto found = std::find_if(file.tensors.begin(), file.tensors.end(),
                                  [&](const FileTensor& tensor) { return tensor.name == name; });
  return found == file.tensors.end() ? nullptr : &*found;
}

Status RefuseWhatIsNotServed(const GgufMetadata& metadata) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view architecture,
                        metadata.RequiredText("general.architecture"));
  if (architecture != "llama") {
    return Unimplemented(fmt::format("{}: general.architecture {}, supported: llama",
                                     metadata.file(), Printable(architecture)));
  }
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> experts,
                        metadata.Integer("llama.expert_count", kAnyCount));
  if (experts.value_or(0) > 0) {
    return Unimplemented(fmt::format("{}: a mixture of {} experts; supported: dense models",
                                     metadata.file(), *experts));
  }
  return {};
}

// A key that llama.cpp takes for each layer: a number, or an array of numbers, which must agree.
Result<std::optional<int64_t>> ForAllLayers(const GgufMetadata& metadata, std::string_view key,
                                            IntegerRange range) {
  if (!metadata.IsArray(key)) return metadata.Integer(key, range);
  SPRY_ASSIGN_OR_RETURN(const auto list, metadata.IntegerList(key));
  const std::vector<int64_t> numbers = list.value_or(std::vector<int64_t>());
  if (numbers.empty() || numbers.front() < range.min || numbers.front() > range.max) {
    return metadata.Wrong(key,
                          numbers.empty() ? "an empty array" : fmt::format("{}", numbers.front()),
                          fmt::format("an integer from {} to {}", range.min, range.max));
  }
  for (const int64_t number : numbers) {
    if (number == numbers.front()) continue;
    return Unimplemented(
        metadata
            .Wrong(key, fmt::format("{} and {} in different layers", numbers.front(), number),
                   "the same in all")
            .message());
  }
  return std::optional(numbers.front());
}

Result<int64_t> RequiredForAllLayers(const GgufMetadata& metadata, std::string_view key,
                                     IntegerRange range) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> value, ForAllLayers(metadata, key, range));
  if (!value) return metadata.Missing(key);
  return *value;
}

Status ReadSizes(const GgufMetadata& metadata, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(config.hidden_size,
                        metadata.RequiredInteger("llama.embedding_length", kHiddenRange));
  SPRY_ASSIGN_OR_RETURN(
      config.intermediate_size,
      RequiredForAllLayers(metadata, "llama.feed_forward_length", kIntermediateRange));
  SPRY_ASSIGN_OR_RETURN(const int64_t layers,
                        metadata.RequiredInteger("llama.block_count", kLayerRange));
  SPRY_ASSIGN_OR_RETURN(const int64_t heads,
                        RequiredForAllLayers(metadata, "llama.attention.head_count", kHeadRange));
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads,
                        ForAllLayers(metadata, "llama.attention.head_count_kv", kHeadRange));
  SPRY_ASSIGN_OR_RETURN(config.max_position,
                        metadata.RequiredInteger("llama.context_length", kPositionRange));
  SPRY_ASSIGN_OR_RETURN(
      config.norm_epsilon,
      metadata.RequiredNumber("llama.attention.layer_norm_rms_epsilon", kEpsilonRange));
  config.num_layers = static_cast<int>(layers);
  config.num_heads = static_cast<int>(heads);
  config.num_kv_heads = static_cast<int>(kv_heads.value_or(heads));
  return {};
}

// Without attention.key_length a head is hidden / heads wide, as in llama.cpp.
Status ReadHeadDim(const GgufMetadata& metadata, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> key_length,
                        metadata.Integer("llama.attention.key_length", kHeadDimRange));
  if (!key_length && config.hidden_size % config.num_heads != 0) {
    return InvalidArgument(fmt::format(
        "{}: llama.embedding_length {} is no multiple of llama.attention.head_count {} and there "
        "is no llama.attention.key_length",
        metadata.file(), config.hidden_size, config.num_heads));
  }
  config.head_dim = key_length.value_or(config.hidden_size / config.num_heads);
  const std::string expected = fmt::format("{}, the size of a head", config.head_dim);
  for (const char* key : {"llama.attention.value_length", "llama.rope.dimension_count"}) {
    SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> value, metadata.Integer(key, kHeadDimRange));
    if (value.value_or(config.head_dim) != config.head_dim) {
      return metadata.Wrong(key, fmt::format("{}", *value), expected);
    }
  }
  return CheckHeads(config, metadata.file());
}

// 1 where there is none, for which 0 stands too; the second key is the older spelling.
Result<double> RopeFactor(const GgufMetadata& metadata) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    SPRY_ASSIGN_OR_RETURN(const std::optional<double> factor,
                          metadata.Number(key, {0.0, kRopeFactorRange.max}));
    if (factor) return *factor == 0.0 ? 1.0 : *factor;
  }
  return 1.0;
}

// llama3 scaling has no key: its factors are the tensor rope_freqs.weight. Those of longrope are
// rope_factors_long.weight and rope_factors_short.weight.
Status ReadRope(const GgufMetadata& metadata, ModelConfig& config) {
  config.rope_interleaved = true;
  SPRY_ASSIGN_OR_RETURN(const std::optional<double> theta,
                        metadata.Number("llama.rope.freq_base", kRopeThetaRange));
  config.rope_theta = theta.value_or(kDefaultRopeTheta);
  // Whatever the type, also none.
  SPRY_ASSIGN_OR_RETURN(const std::optional<double> attention_factor,
                        metadata.Number("llama.rope.scaling.attn_factor", kRopeFactorRange));
  config.rope_attention_factor = attention_factor.value_or(1.0);
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string_view> type,
                        metadata.Text("llama.rope.scaling.type"));
  if (type == "none") return {};
  // llama.cpp takes a factor without a type for linear.
  if (type && type != "linear" && type != "longrope") {
    return Unimplemented(
        metadata.Wrong("llama.rope.scaling.type", Printable(*type), "none, linear or longrope")
            .message());
  }
  SPRY_ASSIGN_OR_RETURN(const double factor, RopeFactor(metadata));
  if (type == "longrope") {
    SPRY_ASSIGN_OR_RETURN(
        const std::optional<int64_t> original,
        metadata.Integer("llama.rope.scaling.original_context_length", kPositionRange));
    config.rope_scaling = {
        .kind = RopeScaling::Kind::kLongRope,
        .factor = factor,
        .original_max_position = static_cast<double>(original.value_or(config.max_position))};
  } else if (factor != 1.0) {
    config.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = factor};
  }
  return {};
}

// A layer that the metadata does not know of would be left out without a word.
Status CheckLayers(const GgufFile& file, const ModelConfig& config) {
  for (const FileTensor& tensor : file.tensors) {
    if (!tensor.name.starts_with(kLayerPrefix)) continue;
    int layer = 0;
    const char* const begin = tensor.name.data() + kLayerPrefix.size();
    const char* const end = tensor.name.data() + tensor.name.size();
    if (std::from_chars(begin, end, layer).ec != std::errc() || layer < config.num_layers) continue;
    return InvalidArgument(fmt::format("{}: tensor {} is of layer {}, but llama.block_count is {}",
                                       file.metadata.file(), Printable(tensor.name), layer,
                                       config.num_layers));
  }
  return {};
}

}  // namespace

Result<ModelConfig> GgufConfig(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata;
  SPRY_RETURN_IF_ERROR(RefuseWhatIsNotServed(metadata));
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.dtype = DType::kBF16;
  SPRY_RETURN_IF_ERROR(ReadSizes(metadata, config));
  SPRY_RETURN_IF_ERROR(CheckLayers(file, config));
  SPRY_RETURN_IF_ERROR(ReadHeadDim(metadata, config));
  SPRY_RETURN_IF_ERROR(ReadRope(metadata, config));
  const FileTensor* embedding = FindTensor(file, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.rank() != 2 ||
      embedding->shape[1] != config.hidden_size || embedding->shape[0] > kVocabRange.max) {
    return InvalidArgument(fmt::format(
        "{}: tensor 'token_embd.weight' {}, expected [vocabulary, {}]", metadata.file(),
        embedding == nullptr ? "is missing" : "has shape " + embedding->shape.ToString(),
        config.hidden_size));
  }
  config.vocab_size = embedding->shape[0];
  config.tied_embeddings = FindTensor(file, "output.weight") == nullptr;
  config.attention_bias = FindTensor(file, "blk.0.attn_q.bias") != nullptr;
  config.output_bias = FindTensor(file, "blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = FindTensor(file, "blk.0.ffn_down.bias") != nullptr;
  return config;
}

std::string HuggingFaceName(std::string_view gguf_name) {
  const size_t last_dot = gguf_name.rfind('.');
  if (last_dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view ending = gguf_name.substr(last_dot);  // ".weight", ".bias"
  const std::string_view stem = gguf_name.substr(0, last_dot);
  if (const NamePair* pair = FindName(kModelNames, stem)) {
    return fmt::format("{}{}", pair->hugging_face, ending);
  }
  const size_t dot = stem.rfind('.');
  if (!stem.starts_with(kLayerPrefix) || dot <= kLayerPrefix.size()) return std::string(gguf_name);
  const std::string_view layer = stem.substr(kLayerPrefix.size(), dot - kLayerPrefix.size());
  const NamePair* pair = FindName(kLayerNames, stem.substr(dot + 1));
  if (pair == nullptr) return std::string(gguf_name);
  return fmt::format("model.layers.{}.{}{}", layer, pair->hugging_face, ending);
}

}  // namespace spry
