#include "checkpoint/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/file_listed.h"
#include "checkpoint/config_limits.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/printable.h"

namespace spry {
namespace {

// What transformers assumes where a Llama config says nothing.
constexpr int64_t kLlamaPositions = 2048;
constexpr double kLlamaEpsilon = 1e-6;
constexpr double kOptEpsilon = 1e-5;  // torch's LayerNorm; OPT configs have no key for it

Result<std::string> ChooseArchitecture(const JsonFields& json) {
  SPRY_ASSIGN_OR_RETURN(const std::vector<std::string> names, json.TextList("architectures"));
  if (names.empty()) return json.Missing("architectures");
  for (const std::string& name : names) {
    if (name == "LlamaForCausalLM" || name == "OPTForCausalLM") return name;
  }
  return Unimplemented(fmt::format("{}: architecture {}, supported: {}", json.where(),
                                   Printable(names.front()), kArchitectures));
}

// "8-bit float" of the first group of a compressed-tensors config, where it says so.
std::string DescribeWeights(const JsonFields& quantization) {
  simdjson::dom::object groups;
  if (quantization.object()["config_groups"].get_object().get(groups) != simdjson::SUCCESS) {
    return "";
  }
  for (const simdjson::dom::key_value_pair group : groups) {
    int64_t bits = 0;
    std::string_view type;
    const auto weights = group.value["weights"];
    if (weights["num_bits"].get_int64().get(bits) != simdjson::SUCCESS) continue;
    if (weights["type"].get_string().get(type) != simdjson::SUCCESS) continue;
    return fmt::format(", {}-bit {} weights", bits, Printable(type));
  }
  return "";
}

Status RefuseQuantization(const JsonFields& json) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<JsonFields> quantization,
                        json.Object("quantization_config"));
  if (!quantization) return {};
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string> method,
                        quantization->Text("quant_method"));
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string> format, quantization->Text("format"));
  return Unimplemented(
      fmt::format("{}: quant_method {}{}{}, supported: unquantised safetensors, or GGUF",
                  quantization->where(), Printable(method.value_or("")),
                  format ? ", format " + Printable(*format) : "", DescribeWeights(*quantization)));
}

Result<DType> ReadDType(const JsonFields& json) {
  const char* key = json.Has("dtype") ? "dtype" : "torch_dtype";
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string> name, json.Text(key));
  if (!name || name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  return json.Wrong(key, "float32, float16 or bfloat16");
}

Result<std::string> ReadActivation(const JsonFields& json, const char* key,
                                   const char* default_name) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string> stated, json.Text(key));
  const std::string name = stated.value_or(default_name);
  if (name == "silu" || name == "swish") return std::string("silu");
  if (name == "relu" || name == "gelu") return name;
  // Three spellings of the tanh form.
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    return std::string("gelu_tanh");
  }
  return json.Wrong(key, "silu, swish, relu, gelu, gelu_new, gelu_fast or gelu_pytorch_tanh");
}

// The sizes that both families spell alike.
Status ReadSizes(const JsonFields& json, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(config.vocab_size, json.RequiredInteger("vocab_size", kVocabRange));
  SPRY_ASSIGN_OR_RETURN(config.hidden_size, json.RequiredInteger("hidden_size", kHiddenRange));
  SPRY_ASSIGN_OR_RETURN(const int64_t layers,
                        json.RequiredInteger("num_hidden_layers", kLayerRange));
  SPRY_ASSIGN_OR_RETURN(const int64_t heads,
                        json.RequiredInteger("num_attention_heads", kHeadRange));
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> positions,
                        json.Integer("max_position_embeddings", kPositionRange));
  config.num_layers = static_cast<int>(layers);
  config.num_heads = static_cast<int>(heads);
  config.max_position = positions.value_or(kLlamaPositions);  // OPT's default is the same
  return {};
}

Status ReadHeadDim(const JsonFields& json, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> head_dim,
                        json.Integer("head_dim", kHeadDimRange));
  if (!head_dim && config.hidden_size % config.num_heads != 0) {
    return InvalidArgument(fmt::format(
        "{}: hidden_size {} is no multiple of num_attention_heads {} and there is no head_dim",
        json.where(), config.hidden_size, config.num_heads));
  }
  config.head_dim = head_dim.value_or(config.hidden_size / config.num_heads);
  return {};
}

Result<RopeScaling> ReadRopeScaling(const JsonFields& rope) {
  const char* key = rope.Has("rope_type") ? "rope_type" : "type";
  SPRY_ASSIGN_OR_RETURN(const std::optional<std::string> kind, rope.Text(key));
  RopeScaling scaling;
  if (!kind || kind == "default") return scaling;
  if (kind != "linear" && kind != "llama3") {
    Status wrong = rope.Wrong(key, "default, linear or llama3");
    return Unimplemented(wrong.message());
  }
  SPRY_ASSIGN_OR_RETURN(scaling.factor, rope.RequiredNumber("factor", kRopeFactorRange));
  scaling.kind = RopeScaling::Kind::kLinear;
  if (kind == "linear") return scaling;
  scaling.kind = RopeScaling::Kind::kLlama3;
  SPRY_ASSIGN_OR_RETURN(scaling.low_freq_factor,
                        rope.RequiredNumber("low_freq_factor", kRopeFactorRange));
  SPRY_ASSIGN_OR_RETURN(scaling.high_freq_factor,
                        rope.RequiredNumber("high_freq_factor", kRopeFactorRange));
  SPRY_ASSIGN_OR_RETURN(const int64_t original,
                        rope.RequiredInteger("original_max_position_embeddings", kPositionRange));
  scaling.original_max_position = static_cast<double>(original);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return rope.Wrong("high_freq_factor", "more than low_freq_factor");
  }
  return scaling;
}

Status RefusePartialRotation(const JsonFields& json) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<double> rotated,
                        json.Number("partial_rotary_factor", {0.0, 1.0}));
  return rotated.value_or(1.0) == 1.0 ? Status() : json.Wrong("partial_rotary_factor", "1");
}

// `rope_parameters` is transformers 5, where theta lies inside; before, theta stood beside
// `rope_scaling`.
Status ReadRope(const JsonFields& json, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(std::optional<JsonFields> rope, json.Object("rope_parameters"));
  if (!rope) {
    SPRY_ASSIGN_OR_RETURN(rope, json.Object("rope_scaling"));
  }
  SPRY_ASSIGN_OR_RETURN(const std::optional<double> theta,
                        json.Number("rope_theta", kRopeThetaRange));
  config.rope_theta = theta.value_or(config.rope_theta);
  SPRY_RETURN_IF_ERROR(RefusePartialRotation(json));
  if (!rope) return {};
  SPRY_RETURN_IF_ERROR(RefusePartialRotation(*rope));
  SPRY_ASSIGN_OR_RETURN(const std::optional<double> inner_theta,
                        rope->Number("rope_theta", kRopeThetaRange));
  config.rope_theta = inner_theta.value_or(config.rope_theta);
  SPRY_ASSIGN_OR_RETURN(config.rope_scaling, ReadRopeScaling(*rope));
  return {};
}

Status ReadLlama(const JsonFields& json, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(config.intermediate_size,
                        json.RequiredInteger("intermediate_size", kIntermediateRange));
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads,
                        json.Integer("num_key_value_heads", kHeadRange));
  config.num_kv_heads = static_cast<int>(kv_heads.value_or(config.num_heads));
  SPRY_RETURN_IF_ERROR(ReadHeadDim(json, config));
  SPRY_ASSIGN_OR_RETURN(const std::optional<double> epsilon,
                        json.Number("rms_norm_eps", kEpsilonRange));
  config.norm_epsilon = epsilon.value_or(kLlamaEpsilon);
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> tied, json.Flag("tie_word_embeddings"));
  config.tied_embeddings = tied.value_or(false);
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> attention_bias, json.Flag("attention_bias"));
  config.attention_bias = attention_bias.value_or(false);
  config.output_bias = config.attention_bias;
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> mlp_bias, json.Flag("mlp_bias"));
  config.mlp_bias = mlp_bias.value_or(false);
  SPRY_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "hidden_act", "silu"));
  return ReadRope(json, config);
}

Status ReadOpt(const JsonFields& json, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(config.intermediate_size,
                        json.RequiredInteger("ffn_dim", kIntermediateRange));
  config.num_kv_heads = config.num_heads;
  SPRY_RETURN_IF_ERROR(ReadHeadDim(json, config));
  config.norm_epsilon = kOptEpsilon;
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> tied, json.Flag("tie_word_embeddings"));
  config.tied_embeddings = tied.value_or(true);
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> bias, json.Flag("enable_bias"));
  config.attention_bias = config.output_bias = config.mlp_bias = bias.value_or(true);
  SPRY_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "activation_function", "relu"));
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> before, json.Flag("do_layer_norm_before"));
  config.do_layer_norm_before = before.value_or(true);
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> removed, json.Flag("_remove_final_layer_norm"));
  config.remove_final_layer_norm = removed.value_or(false);
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> embedding,
                        json.Integer("word_embed_proj_dim", kHiddenRange));
  config.word_embed_proj_dim = embedding.value_or(config.hidden_size);
  SPRY_ASSIGN_OR_RETURN(const std::optional<bool> affine,
                        json.Flag("layer_norm_elementwise_affine"));
  if (!affine.value_or(true)) return json.Wrong("layer_norm_elementwise_affine", "true");
  return {};
}

Status AddEosTokens(const JsonFields& json, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                        json.IntegerOrList("eos_token_id", {0, config.vocab_size - 1}));
  for (const int64_t id : ids) AddEosToken(TokenId(static_cast<int32_t>(id)), config);
  return {};
}

Status ReadTokens(const JsonFields& json, ModelConfig& config) {
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> bos,
                        json.Integer("bos_token_id", {0, config.vocab_size - 1}));
  if (bos) config.bos_token = TokenId(static_cast<int32_t>(*bos));
  return AddEosTokens(json, config);
}

}  // namespace

void AddEosToken(TokenId id, ModelConfig& config) {
  std::vector<TokenId>& known = config.eos_tokens;
  if (std::find(known.begin(), known.end(), id) == known.end()) known.push_back(id);
}

Result<ModelConfig> ReadHfConfig(const std::filesystem::path& config_json) {
  SPRY_ASSIGN_OR_RETURN(const JsonText file, JsonText::Read(config_json));
  const JsonFields& json = file.root();
  ModelConfig config;
  SPRY_ASSIGN_OR_RETURN(config.architecture, ChooseArchitecture(json));
  SPRY_RETURN_IF_ERROR(RefuseQuantization(json));
  SPRY_ASSIGN_OR_RETURN(config.dtype, ReadDType(json));
  SPRY_RETURN_IF_ERROR(ReadSizes(json, config));
  SPRY_RETURN_IF_ERROR(config.architecture == "OPTForCausalLM" ? ReadOpt(json, config)
                                                               : ReadLlama(json, config));
  SPRY_RETURN_IF_ERROR(CheckHeads(config, json.where()));
  SPRY_RETURN_IF_ERROR(ReadTokens(json, config));
  return config;
}

Status AddGenerationConfig(const std::filesystem::path& generation_config_json,
                           ModelConfig& config) {
  if (!IsListed(generation_config_json)) return {};
  SPRY_ASSIGN_OR_RETURN(const JsonText file, JsonText::Read(generation_config_json));
  const JsonFields& json = file.root();
  SPRY_RETURN_IF_ERROR(AddEosTokens(json, config));
  SamplingDefaults& sampling = config.sampling_defaults;
  SPRY_ASSIGN_OR_RETURN(sampling.temperature, json.Number("temperature", {0.0, 100.0}));
  SPRY_ASSIGN_OR_RETURN(sampling.top_p, json.Number("top_p", {1e-6, 1.0}));
  SPRY_ASSIGN_OR_RETURN(sampling.min_p, json.Number("min_p", {0.0, 1.0}));
  SPRY_ASSIGN_OR_RETURN(sampling.repetition_penalty,
                        json.Number("repetition_penalty", {1e-6, 1e6}));
  // -1 and 0 both mean: all tokens.
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, json.Integer("top_k", {-1, 1 << 30}));
  if (top_k) sampling.top_k = static_cast<int>(*top_k);
  return {};
}

}  // namespace spry
