#include "program/program.h"

#include <algorithm>

namespace spry {

std::string_view OpName(OpId id) {
  static constexpr std::string_view kNames[kNumOps] = {
      "stage", "embed",          "layer_norm", "rms_norm",   "linear",
      "rope",  "write_kv",       "attention",  "activation", "gated_activation",
      "add",   "gather_samples", "sample",     "advance",
  };
  return kNames[static_cast<int>(id)];
}

char RowDimLetter(RowDim dim) {
  switch (dim) {
    case RowDim::kTokens: return 'T';
    case RowDim::kSamples: return 'L';
  }
  return '?';
}

namespace {

// The first and the last op that touch a buffer.
struct Life {
  int first = -1;
  int last = -1;
};

std::vector<Life> FindLives(const Program& program) {
  std::vector<Life> lives(program.buffers.size());
  const auto touch = [&](const Tensor& tensor, int op) {
    Life& life = lives[tensor.buffer.value()];
    if (life.first < 0) life.first = op;
    life.last = op;
  };
  for (int i = 0; i < static_cast<int>(program.ops.size()); ++i) {
    for (const Tensor& tensor : program.ops[i].inputs) touch(tensor, i);
    for (const Tensor& tensor : program.ops[i].outputs) touch(tensor, i);
  }
  // Logits can be read after the step.
  if (program.logits.buffer.value() >= 0) {
    lives[program.logits.buffer.value()].last = static_cast<int>(program.ops.size());
  }
  return lives;
}

}  // namespace

BufferPlan PlanBuffers(const Program& program, const StepLimits& limits) {
  const std::vector<Life> lives = FindLives(program);
  struct Placed {
    int64_t begin, end;
    Life life;
  };
  std::vector<Placed> placed;
  BufferPlan plan;
  plan.offset_bytes.assign(program.buffers.size(), 0);
  // In order of first use, each at the lowest offset free during its whole life. A forward pass is
  // nearly a stack, so first fit comes within a few percent of the best.
  for (size_t id = 0; id < program.buffers.size(); ++id) {
    const Life life = lives[id];
    if (life.first < 0) continue;  // fused away
    const BufferRecord& buffer = program.buffers[id];
    int64_t bytes = MaxRows(buffer.rows, limits) * RowBytes(buffer.dtype, buffer.width);
    bytes = (bytes + kBufferAlignBytes - 1) / kBufferAlignBytes * kBufferAlignBytes;
    std::vector<Placed> others;
    for (const Placed& other : placed) {
      if (other.life.first <= life.last && life.first <= other.life.last) others.push_back(other);
    }
    std::sort(others.begin(), others.end(),
              [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
    int64_t at = 0;
    for (const Placed& other : others) {
      if (other.begin - at >= bytes) break;
      at = std::max(at, other.end);
    }
    placed.push_back({at, at + bytes, life});
    plan.offset_bytes[id] = at;
    plan.arena_bytes = std::max(plan.arena_bytes, at + bytes);
  }
  return plan;
}

}  // namespace spry
