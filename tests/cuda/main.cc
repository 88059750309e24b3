// Compares the CUDA plug-in, found beside this program, with the CPU reference.
//   spry_cuda_check [threads] [group ...]     groups: ops rows attention sampling
//                                         rules traffic half draws models faults
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"

int main(int argc, char** argv) {
  using namespace spry::testing;
  CheckOptions options{.threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1};
  const std::vector<std::string> wanted(argv + std::min(argc, 2), argv + argc);
  const auto device = LoadCuda({});
  if (!device.ok()) {
    std::printf("FAIL  %s\n", device.status().message().c_str());
    return 1;
  }
  Report report;
  report.Figure("card", (*device)->info().description);
  const struct {
    const char* name;
    void (*check)(Report&, const CheckOptions&);
  } groups[] = {{"ops", CheckRowOps},         {"rows", CheckRows},   {"attention", CheckAttention},
                {"sampling", CheckSampling},  {"rules", CheckRules}, {"traffic", CheckTraffic},
                {"half", CheckHalfPrecision}, {"draws", CheckDraws}, {"models", CheckModels},
                {"faults", CheckFaults}};
  for (const auto& group : groups) {
    const bool asked = std::find(wanted.begin(), wanted.end(), group.name) != wanted.end();
    if (wanted.empty() || asked) group.check(report, options);
  }
  return report.Finish() ? 0 : 1;
}
