// /metrics, under vLLM's names and with its buckets, so that its dashboards work. What the engine
// knows is asked when somebody looks; what requests tell is counted as it happens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/async_engine.h"
#include "server/generations.h"

namespace spry {

class Metrics final : public GenerationObserver {
 public:
  // `ended` is called with each request's report, for the log.
  Metrics(const std::string& model_name, const MemoryPlan& plan,
          std::function<void(const RequestReport&)> ended);
  ~Metrics() override;

  void OnToken(std::optional<double> seconds_since_last) override;
  void OnFirstToken(double seconds_since_arrival) override;
  void OnEnd(const RequestReport& report) override;

  // In Prometheus' text format.
  std::string Text(const EngineStatus& engine);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
  std::function<void(const RequestReport&)> ended_;
};

}  // namespace spry
