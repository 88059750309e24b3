// spry inspect: what a model is and what it will take, without loading it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/command.h"
#include "app/devices.h"
#include "app/flags.h"
#include "app/inspect_report.h"
#include "app/write_text.h"
#include "ops/describe.h"
#include "runtime/model_runner.h"
#include "text/tokenizer.h"

namespace spry {
namespace {

struct InspectFlags {
  DeviceFlags device;
  ModelFlags model;
  bool program = false;
  bool json = false;
};

Result<int> RunInspect(const InspectFlags& flags) {
  SPRY_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                        OpenCheckpoint(flags.model.model, flags.model.checkpoint));
  SPRY_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(flags.device));
  const Result<ModelPlan> plan = PlanModel(*device, checkpoint, flags.model.engine.runner);
  if (flags.program) {
    if (!plan.ok()) return plan.status();
    SPRY_RETURN_IF_ERROR(WriteStdout(Describe(plan->program)));
    return kExitDone;
  }
  std::unique_ptr<Tokenizer> tokenizer;
  if (checkpoint.vocab != nullptr) {
    SPRY_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Create(*checkpoint.vocab));
  }
  const InspectReport report(checkpoint, tokenizer.get(), plan.ok() ? &*plan : nullptr);
  SPRY_RETURN_IF_ERROR(WriteStdout(flags.json ? report.ToJson() : report.ToText()));
  // A model that spry cannot run is still worth looking at; the reason comes last.
  if (!plan.ok()) return plan.status();
  return kExitDone;
}

}  // namespace

Command AddInspect(CLI::App& parent) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App& parser = *parent.add_subcommand("inspect", "Show a model: sizes, tensors, memory plan");
  parser.footer(
      "Nothing is loaded; the memory plan is that of the device and flags given.\n\n"
      "Examples:\n  spry inspect model.gguf\n  spry inspect ./opt-125m --load-format "
      "dummy --program");
  CLI::Option* program =
      parser.add_flag("--program", flags->program, "Print the traced and fused Program instead")
          ->group("Output");
  parser.add_flag("--json", flags->json, "Print one JSON object")
      ->excludes(program)
      ->group("Output");
  AddModelFlags(parser, flags->model);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags] { return RunInspect(*flags); }};
}

}  // namespace spry
