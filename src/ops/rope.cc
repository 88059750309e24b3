#include "ops/rope.h"

#include <cmath>
#include <memory>
#include <vector>

namespace spry {

WeightHandle RopeTable(std::span<const double> frequencies, int64_t max_length) {
  const int64_t half = static_cast<int64_t>(frequencies.size());
  WeightHandle handle{
      .name = "rope_table", .dtype = DType::kF32, .shape = Shape{max_length, 2 * half}};
  handle.read = [kept = std::vector<double>(frequencies.begin(), frequencies.end()), half,
                 max_length, shape = handle.shape]() -> Result<HostTensor> {
    auto table = std::make_shared<std::vector<float>>(max_length * 2 * half);
    for (int64_t p = 0; p < max_length; ++p) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * kept[i];
        (*table)[p * 2 * half + i] = static_cast<float>(std::cos(angle));
        (*table)[p * 2 * half + half + i] = static_cast<float>(std::sin(angle));
      }
    }
    return HostTensor{.dtype = DType::kF32,
                      .shape = shape,
                      .data = std::as_bytes(std::span(*table)),
                      .owner = table};
  };
  return handle;
}

void Rope(Tracer& tracer, const Tensor& q, const Tensor& k, const WeightHandle& table,
          const RopeParams& params) {
  DimBinder dims(tracer, "rope");
  dims.Bind("H*D", q.width, "q");
  dims.Bind("H*D", int64_t{params.num_heads} * params.head_dim, "heads x head_dim");
  dims.Bind("Hkv*D", k.width, "k");
  dims.Bind("Hkv*D", int64_t{params.num_kv_heads} * params.head_dim, "kv heads x head_dim");
  dims.Bind("rotary_dim", params.rotary_dim, "params");
  dims.Bind("rotary_dim", table.shape[1], table.name);
  const WeightId weight = tracer.AddWeight({&table, 1});
  tracer.Emit({.id = OpId::kRope,
               .inputs = {q, k},
               .outputs = {q, k},
               .weights = {weight},
               .params = OpParams::Of(params)});
}

}  // namespace spry
