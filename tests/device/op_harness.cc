#include "tests/device/op_harness.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "ops/embed.h"
#include "ops/fusion.h"
#include "tensor/dequantize.h"
#include "tensor/float16.h"
#include "tests/support/random_blocks.h"

namespace spry::testing {

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15ull;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

namespace {

constexpr int kBlock = 32;

void Append16(std::vector<std::byte>& bytes, uint16_t bits) {
  bytes.push_back(static_cast<std::byte>(bits & 0xff));
  bytes.push_back(static_cast<std::byte>(bits >> 8));
}

// 32 elements of a block type with random codes, and what they mean.
void AppendBlock(DType dtype, float scale, Random& random, std::vector<std::byte>& bytes,
                 std::vector<double>& values) {
  const bool q8 = dtype == DType::kQ8_0;
  const uint16_t d_bits = FloatToF16(random.Between(0.2f, 1.0f) * scale / (q8 ? 128.0f : 8.0f));
  const uint16_t m_bits = FloatToF16(-random.Between(0.5f, 1.0f) * scale);
  const double d = F16ToFloat(d_bits), m = F16ToFloat(m_bits);
  Append16(bytes, d_bits);
  if (dtype == DType::kQ4_1) Append16(bytes, m_bits);
  int codes[kBlock];
  for (int& code : codes) code = static_cast<int>(random.Below(q8 ? 256 : 16)) - (q8 ? 128 : 0);
  for (const int code : codes) {
    if (q8) values.push_back(d * code);
    if (dtype == DType::kQ4_0) values.push_back(d * (code - 8));
    if (dtype == DType::kQ4_1) values.push_back(d * code + m);
  }
  if (q8) {
    for (const int code : codes) bytes.push_back(static_cast<std::byte>(code & 0xff));
  } else {
    for (int i = 0; i < kBlock / 2; ++i) {
      bytes.push_back(static_cast<std::byte>(codes[i] | codes[i + kBlock / 2] << 4));
    }
  }
}

// For types whose meaning the checkpoint tests compare with the gguf package.
void AppendWholeBlock(DType dtype, float scale, Random& random, std::vector<std::byte>& bytes,
                      std::vector<double>& values) {
  const DTypeTraits& traits = Traits(dtype);
  // Codes reach 127 in the IQ4 types, sub-scales 63 and more.
  const float d = random.Between(0.2f, 1.0f) * scale / (traits.block_elements == 32 ? 64 : 2048);
  const float minimum = random.Between(-0.5f, 1.0f) * scale / 64;
  std::vector<std::byte> block(traits.block_bytes);
  FillBlock(
      dtype, d, minimum, [&] { return random.Next(); }, block.data());
  std::vector<float> floats(traits.block_elements);
  DequantizeRow(dtype, block.data(), traits.block_elements, floats.data());
  bytes.insert(bytes.end(), block.begin(), block.end());
  values.insert(values.end(), floats.begin(), floats.end());
}

void AppendPlain(DType dtype, float value, std::vector<std::byte>& bytes,
                 std::vector<double>& values) {
  if (dtype == DType::kF32) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), raw, raw + sizeof(value));
    values.push_back(value);
  } else {
    const bool bf16 = dtype == DType::kBF16;
    const uint16_t bits = bf16 ? FloatToBf16(value) : FloatToF16(value);
    Append16(bytes, bits);
    values.push_back(bf16 ? Bf16ToFloat(bits) : F16ToFloat(bits));
  }
}

TestWeight MakeWeight(std::string name, DType dtype, const Shape& shape,
                      std::vector<std::byte> bytes, std::vector<double> values) {
  auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  TestWeight weight{.handle = {.name = std::move(name), .dtype = dtype, .shape = shape},
                    .values = std::move(values)};
  weight.handle.read = [kept, dtype, shape]() -> Result<HostTensor> {
    return HostTensor{.dtype = dtype, .shape = shape, .data = *kept, .owner = kept};
  };
  return weight;
}

}  // namespace

TestWeight RandomWeight(std::string name, DType dtype, const Shape& shape, float scale,
                        uint64_t seed) {
  Random random(seed);
  const int64_t elements = *shape.elements();
  std::vector<std::byte> bytes;
  std::vector<double> values;
  for (int64_t i = 0; i < elements; i += Traits(dtype).block_elements) {
    if (dtype > DType::kQ8_0) {
      AppendWholeBlock(dtype, scale, random, bytes, values);
    } else if (IsQuantized(dtype)) {
      AppendBlock(dtype, scale, random, bytes, values);
    } else {
      AppendPlain(dtype, random.Between(-scale, scale), bytes, values);
    }
  }
  return MakeWeight(std::move(name), dtype, shape, std::move(bytes), std::move(values));
}

TestWeight FloatWeight(std::string name, const Shape& shape, std::vector<float> floats) {
  CHECK(static_cast<int64_t>(floats.size()) == *shape.elements());
  std::vector<std::byte> bytes;
  std::vector<double> values;
  for (const float value : floats) AppendPlain(DType::kF32, value, bytes, values);
  return MakeWeight(std::move(name), DType::kF32, shape, std::move(bytes), std::move(values));
}

TestWeight IdentityWeight(int64_t width) {
  std::vector<float> values(width * width);
  for (int64_t i = 0; i < width; ++i) values[i * width + i] = 1.0f;
  return FloatWeight("identity", Shape{width, width}, std::move(values));
}

StepWriter::StepWriter(const StepSlot& slot, StepId step) : slot_(slot) {
  *slot_.header = {.step = step.value()};
}

void StepWriter::Join(int row, const RowParams& params, int num_outputs) {
  slot_.joins[slot_.header->num_joins++] = {
      .row = row, .num_outputs = num_outputs, .params = params};
}

void StepWriter::WriteBlock(int row, int index, int block) {
  slot_.block_writes[slot_.header->num_block_writes++] = {
      .row = row, .index = index, .block = block};
}

void StepWriter::AddRow(const SlotRow& row) {
  SlotRow& added = slot_.rows[slot_.header->num_rows++];
  added = row;
  added.query_start = slot_.header->num_tokens;
  added.sample_index = row.num_samples > 0 ? slot_.header->num_samples : -1;
  slot_.header->num_samples += row.num_samples;
  slot_.header->num_tokens += row.num_tokens;
}

void StepWriter::Prefill(int row, std::span<const int32_t> ids, int start, bool sample) {
  constexpr int32_t kChoose = -1;
  Judge(row, ids, start, sample ? 1 : 0, kChoose);
}

void StepWriter::Judge(int row, std::span<const int32_t> ids, int start, int num_samples,
                       int32_t next) {
  std::memcpy(slot_.token_ids + slot_.header->num_tokens, ids.data(), ids.size_bytes());
  AddRow({.row = row,
          .num_tokens = static_cast<int32_t>(ids.size()),
          .start = start,
          .num_samples = num_samples,
          .next_token = next});
}

void StepWriter::Decode(int row) {
  AddRow({.row = row, .num_tokens = 1, .num_samples = 1, .decode = 1});
}

const StepResult& TestExecutable::RunStep(const std::function<void(StepWriter&)>& fill) {
  const StepId step = next_step_;
  next_step_ = StepId(step.value() + 1);
  StepWriter writer(executable().Slot(step), step);
  fill(writer);
  CHECK(executable().Launch(step).ok());
  while (true) {
    const Result<const StepResult*> result = executable().Poll(step);
    CHECK(result.ok());
    if (*result != nullptr) return **result;
  }
}

std::vector<SampledResult> SampledResults(const StepResult& result, int rows) {
  std::vector<SampledResult> results;
  for (int r = 0; r < rows; ++r) results.push_back({result.rows[r], result.logprobs[r]});
  return results;
}

RowOpRunner::RowOpRunner(const RowOpCase& op_case, const Target& target, bool fuse) {
  const int64_t width =
      std::accumulate(op_case.input_widths.begin(), op_case.input_widths.end(), int64_t{0});
  constexpr uint64_t kTableSeed = 7;
  // An f32 table under another compute type would be rounded, so the table has that type.
  table_ = RandomWeight("inputs", op_case.compute, Shape{kRowOpTableRows, width}, 1.5f, kTableSeed);
  Tracer tracer("row op", {.compute = op_case.compute,
                           .activation = target.ActivationDType(op_case.compute),
                           .max_length = kRowOpPositions});
  const Tensor x = Embed(tracer, table_.handle);
  std::vector<Tensor> inputs;
  int64_t column = 0;
  for (const int64_t input_width : op_case.input_widths) {
    inputs.push_back(x.Columns(column, input_width));
    column += input_width;
  }
  output_ = op_case.build(tracer, inputs);
  tracer.SetLogits(output_);  // keeps it to the end
  tracer.Emit({.id = OpId::kAdvance});
  Result<Program> program = tracer.Finish(kRowOpTableRows);
  if (!program.ok()) std::fprintf(stderr, "%s\n", program.status().message().c_str());
  program_ = std::make_unique<Program>(*std::move(program));
  if (fuse) FuseOps(*program_);
  executable_ = target.Compile(*program_, {.max_tokens = kRowOpTokens,
                                           .max_rows = kRowOpTokens,
                                           .max_samples = kRowOpTokens,
                                           .max_blocks_per_row = 1,
                                           .num_blocks = 1});
}

std::vector<float> RowOpRunner::Run(std::span<const InputToken> tokens) {
  executable_->RunStep([&](StepWriter& step) {
    for (int row = 0; row < static_cast<int>(tokens.size()); ++row) {
      step.Join(row, {});
      step.Prefill(row, {&tokens[row].id, 1}, tokens[row].position, /*sample=*/true);
    }
  });
  return executable_->Read(output_, static_cast<int64_t>(tokens.size()));
}

std::vector<double> RowOpRunner::Inputs(int32_t id) const {
  const int64_t width = table_.handle.shape[1];
  const auto row = table_.values.begin() + id * width;
  return {row, row + width};
}

}  // namespace spry::testing
