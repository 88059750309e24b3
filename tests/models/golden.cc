#include "tests/models/golden.h"

#include <algorithm>

namespace spry {
namespace {

std::vector<float> Floats(const std::vector<WeightHandle>& file, const std::string& name,
                          Shape* shape) {
  for (const WeightHandle& tensor : file) {
    if (tensor.name != name) continue;
    const Result<HostTensor> host = tensor.read();
    CHECK(host.ok() && host->dtype == DType::kF32);
    *shape = host->shape;
    std::vector<float> values(host->data.size() / sizeof(float));
    std::memcpy(values.data(), host->data.data(), host->data.size());
    return values;
  }
  CHECK(false && "no such golden tensor");
  return {};
}

}  // namespace

GoldenModel ReadGolden(const std::string& model) {
  auto tensors = ReadSafetensors(GoldenFolder(model) / "golden.safetensors");
  CHECK(tensors.ok());
  const auto weights = MakeFileWeights({.source = model, .tensors = *std::move(tensors)});
  CHECK(weights.ok());
  const std::vector<WeightHandle> file = (*weights)->List();
  GoldenModel golden;
  Shape shape;
  golden.tokens = Floats(file, "tokens", &shape);
  golden.logits16 = Floats(file, "logits16", &shape);
  golden.logits = Floats(file, "logits", &shape);
  golden.length = static_cast<int>(shape[1]);
  golden.vocab_size = static_cast<int>(shape[2]);
  const auto [low, high] = std::minmax_element(golden.logits.begin(), golden.logits.end());
  golden.logit_range = *high - *low;
  return golden;
}

}  // namespace spry
