#include "ops/rope.h"

#include <cmath>
#include <memory>
#include <vector>

namespace spry {

WeightId AddRopeTable(Tracer& tracer, std::span<const double> frequencies, double magnitude) {
  const int64_t max_length = tracer.options().max_length;
  const int64_t half = static_cast<int64_t>(frequencies.size());
  WeightHandle handle{
      .name = "rope_table", .dtype = DType::kF32, .shape = Shape{max_length, 2 * half}};
  handle.read = [kept = std::vector<double>(frequencies.begin(), frequencies.end()), half,
                 max_length, magnitude, shape = handle.shape]() -> Result<HostTensor> {
    auto table = std::make_shared<std::vector<float>>(max_length * 2 * half);
    for (int64_t p = 0; p < max_length; ++p) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * kept[i];
        (*table)[p * 2 * half + i] = static_cast<float>(magnitude * std::cos(angle));
        (*table)[p * 2 * half + half + i] = static_cast<float>(magnitude * std::sin(angle));
      }
    }
    return HostTensor{.dtype = DType::kF32,
                      .shape = shape,
                      .data = std::as_bytes(std::span(*table)),
                      .owner = table};
  };
  return tracer.AddWeight({&handle, 1});
}

void Rope(Tracer& tracer, const Tensor& q, const Tensor& k, WeightId table,
          const RopeParams& params) {
  DimBinder dims(tracer, "rope");
  dims.Bind("H*D", q.width, "q");
  dims.Bind("H*D", int64_t{params.num_heads} * params.head_dim, "heads x head_dim");
  dims.Bind("Hkv*D", k.width, "k");
  dims.Bind("Hkv*D", int64_t{params.num_kv_heads} * params.head_dim, "kv heads x head_dim");
  dims.Bind("rotary_dim", params.rotary_dim, "params");
  dims.Bind("rotary_dim", tracer.weight(table).columns, "rope table");
  tracer.Emit({.id = OpId::kRope,
               .inputs = {q, k},
               .outputs = {q, k},
               .weights = {table},
               .params = OpParams::Of(params)});
}

}  // namespace spry
