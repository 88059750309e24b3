#include "app/inspect_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>
#include <set>

namespace spry {
namespace {

namespace json = boost::json;

// In the order of layers: 2 before 10.
void SortByName(std::vector<WeightHandle>& tensors) {
  std::ranges::sort(tensors, [](const WeightHandle& a, const WeightHandle& b) {
    return strverscmp(a.name.c_str(), b.name.c_str()) < 0;
  });
}

std::vector<WeightHandle> TensorsOf(const Checkpoint& checkpoint, const ModelPlan* plan) {
  std::vector<WeightHandle> tensors = checkpoint.weights->List();
  SortByName(tensors);
  if (!tensors.empty() || plan == nullptr) return tensors;
  // A tied embedding is used twice; what is computed, as the angles of rope, is no tensor of a
  // file.
  std::set<std::string> names;
  for (const WeightRecord& weight : plan->program.weights) {
    for (const WeightHandle& part : weight.parts) {
      if (!part.file_type.empty() && names.insert(part.name).second) tensors.push_back(part);
    }
  }
  return tensors;
}

const char* Name(RopeScaling::Kind kind) {
  switch (kind) {
    case RopeScaling::Kind::kNone: break;
    case RopeScaling::Kind::kLinear: return "linear";
    case RopeScaling::Kind::kLlama3: return "llama3";
    case RopeScaling::Kind::kLongRope: return "longrope";
  }
  return "none";
}

std::vector<int> Values(const std::vector<TokenId>& ids) {
  std::vector<int> values;
  for (const TokenId id : ids) values.push_back(id.value());
  return values;
}

json::object ConfigJson(const ModelConfig& c) {
  return {{"architecture", c.architecture},
          {"dtype", std::string(Traits(c.dtype).name)},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_layers", c.num_layers},
          {"num_heads", c.num_heads},
          {"num_kv_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"max_position", c.max_position},
          {"tied_embeddings", c.tied_embeddings},
          {"rope_theta", c.rope_theta},
          {"rope_scaling", Name(c.rope_scaling.kind)},
          {"eos_tokens", json::value_from(Values(c.eos_tokens))}};
}

json::object PlanJson(const MemoryPlan& plan) {
  return {
      {"weights_bytes", plan.needs.weights},  {"activations_bytes", plan.needs.activations},
      {"step_bytes", plan.needs.step},        {"graphs_bytes", plan.needs.graphs},
      {"kv_cache_bytes", plan.kv_bytes},      {"num_blocks", plan.limits.num_blocks},
      {"block_size", plan.limits.block_size}, {"max_model_len", plan.max_model_len},
      {"max_num_seqs", plan.limits.max_rows}, {"max_num_batched_tokens", plan.limits.max_tokens},
      {"run_ahead", plan.run_ahead}};
}

}  // namespace

InspectReport::InspectReport(const Checkpoint& checkpoint, const Tokenizer* tokenizer,
                             const ModelPlan* plan)
    : checkpoint_(checkpoint),
      tokenizer_(tokenizer),
      plan_(plan),
      tensors_(TensorsOf(checkpoint, plan)) {
  for (const WeightHandle& tensor : tensors_) {
    Total& total = totals_[tensor.file_type];
    ++total.tensors;
    total.elements += tensor.shape.elements().value_or(0);
  }
}

std::string InspectReport::ConfigText() const {
  const ModelConfig& c = checkpoint_.config;
  std::string text = fmt::format(
      "architecture: {} ({}, {})\n"
      "sizes: {} layers, hidden {}, MLP {}, {} heads of {} ({} for KV), vocabulary {}, up to {} "
      "tokens\n"
      "embeddings: {}\n",
      c.architecture, checkpoint_.format, Traits(c.dtype).name, c.num_layers, c.hidden_size,
      c.intermediate_size, c.num_heads, c.head_dim, c.num_kv_heads, c.vocab_size, c.max_position,
      c.tied_embeddings ? "tied to the output" : "not tied to the output");
  if (c.architecture != "OPTForCausalLM") {
    text += fmt::format("rope: theta {}, scaling {}\n", c.rope_theta, Name(c.rope_scaling.kind));
  }
  text += fmt::format("end ids: {}\n", fmt::join(Values(c.eos_tokens), ", "));
  return text;
}

std::string InspectReport::TensorsText() const {
  std::string text = fmt::format("tensors: {}\n", tensors_.size());
  for (const WeightHandle& tensor : tensors_) {
    text +=
        fmt::format("  {:<52} {:<6} {}\n", tensor.name, tensor.file_type, tensor.shape.ToString());
  }
  for (const auto& [type, total] : totals_) {
    text += fmt::format("total {}: {} tensors, {} elements\n", type, total.tensors, total.elements);
  }
  return text;
}

std::string InspectReport::TokenizerText() const {
  if (tokenizer_ == nullptr) return "tokenizer: none\n";
  const VocabSource& vocab = *checkpoint_.vocab;
  return fmt::format("tokenizer: {} ids, {} merges, {} added tokens; adds bos: {}, eos: {}{}\n",
                     tokenizer_->vocab_size(), vocab.merges.size(), vocab.added_tokens.size(),
                     vocab.add_bos ? "yes" : "no", vocab.add_eos ? "yes" : "no",
                     vocab.chat_template.empty() ? "" : "; has a chat template");
}

std::string InspectReport::ToText() const {
  return ConfigText() + TensorsText() + TokenizerText() +
         (plan_ == nullptr ? "" : "memory plan: " + plan_->memory.ToString() + "\n");
}

std::string InspectReport::ToJson() const {
  json::array tensors;
  for (const WeightHandle& tensor : tensors_) {
    json::array shape;
    for (int i = 0; i < tensor.shape.rank(); ++i) shape.emplace_back(tensor.shape[i]);
    tensors.push_back(json::object{
        {"name", tensor.name}, {"dtype", tensor.file_type}, {"shape", std::move(shape)}});
  }
  json::object totals;
  for (const auto& [type, total] : totals_) {
    totals[type] = json::object{{"tensors", total.tensors}, {"elements", total.elements}};
  }
  json::object report = {
      {"format", checkpoint_.format},  {"config", ConfigJson(checkpoint_.config)},
      {"tensors", std::move(tensors)}, {"totals", std::move(totals)},
      {"tokenizer", nullptr},          {"memory_plan", nullptr}};
  if (tokenizer_ != nullptr) {
    const VocabSource& vocab = *checkpoint_.vocab;
    report["tokenizer"] = {{"vocab_size", tokenizer_->vocab_size()},
                           {"merges", vocab.merges.size()},
                           {"added_tokens", vocab.added_tokens.size()},
                           {"add_bos", vocab.add_bos},
                           {"add_eos", vocab.add_eos},
                           {"chat_template", !vocab.chat_template.empty()}};
  }
  if (plan_ != nullptr) report["memory_plan"] = PlanJson(plan_->memory);
  return json::serialize(report) + "\n";
}

}  // namespace spry
