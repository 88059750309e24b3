#include "ops/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/activation.h"
#include "ops/attention/attention.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/rope.h"

namespace spry {
namespace {

std::string Describe(const Program& program, const Tensor& tensor) {
  const BufferRecord& buffer = program.buffer(tensor.buffer);
  std::string columns = std::to_string(tensor.width);
  if (tensor.width != buffer.width) {
    columns = fmt::format("{}:{}", tensor.offset, tensor.offset + tensor.width);
  }
  return fmt::format("{}.{}[{}, {}]", buffer.name, tensor.buffer.value(), RowDimLetter(tensor.rows),
                     columns);
}

std::string Describe(Activation activation) {
  switch (activation) {
    case Activation::kNone: return "none";
    case Activation::kRelu: return "relu";
    case Activation::kSilu: return "silu";
  }
  return "?";
}

// The switches of an op that its operands do not show.
std::string DescribeParams(const OpRecord& op) {
  switch (op.id) {
    case OpId::kLinear: {
      const LinearParams params = op.params.As<LinearParams>();
      return fmt::format(
          "{}{}{}{}",
          params.norm == NormKind::kNone    ? ""
          : params.norm == NormKind::kLayer ? ", layer_norm first"
                                            : ", rms_norm first",
          params.has_residual ? ", +residual" : "",
          params.activation == Activation::kNone ? "" : ", act=" + Describe(params.activation),
          params.gated ? ", gated" : "");
    }
    case OpId::kEmbed: return op.params.As<EmbedParams>().positions_only ? ", positions only" : "";
    case OpId::kActivation:
    case OpId::kGatedActivation:
      return ", act=" + Describe(op.params.As<ActivationParams>().activation);
    case OpId::kRope: return op.params.As<RopeParams>().interleaved ? ", interleaved" : "";
    case OpId::kWriteKv:
      return fmt::format(", layer={}", op.params.As<WriteKvParams>().layer.value());
    case OpId::kAttention: {
      const AttentionParams params = op.params.As<AttentionParams>();
      return fmt::format(
          ", layer={}, heads={}/{}x{}{}{}{}{}{}", params.layer.value(), params.num_heads,
          params.num_kv_heads, params.head_dim,
          params.window > 0 ? fmt::format(", window={}", params.window) : "",
          params.soft_cap > 0.0f ? fmt::format(", soft_cap={}", params.soft_cap) : "",
          params.has_alibi ? ", alibi" : "", params.has_sinks ? ", sinks" : "",
          params.rope.rotary_dim > 0 ? ", rope" : "");
    }
    default: return "";
  }
}

}  // namespace

std::string Describe(const Program& program, const OpRecord& op) {
  std::vector<std::string> outputs, operands;
  for (const Tensor& tensor : op.outputs) outputs.push_back(Describe(program, tensor));
  for (const Tensor& tensor : op.inputs) operands.push_back(Describe(program, tensor));
  for (const WeightId id : op.weights) {
    const WeightRecord& weight = program.weight(id);
    operands.push_back(
        fmt::format("{}{} [{}, {}] {}", weight.name(),
                    weight.parts.size() > 1 ? fmt::format(" +{}", weight.parts.size() - 1) : "",
                    weight.rows, weight.columns, Traits(weight.parts.front().dtype).name));
  }
  return fmt::format("{}{}{}({}{})", fmt::join(outputs, ", "), outputs.empty() ? "" : " = ",
                     OpName(op.id), fmt::join(operands, ", "), DescribeParams(op));
}

std::string Describe(const Program& program) {
  std::string text;
  for (const OpRecord& op : program.ops) text += Describe(program, op) + "\n";
  return text;
}

}  // namespace spry
