// spry bench machine: what the CPU and its memory can do at most (device/cpu/machine_speed.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>
#include <string>

#include "app/command.h"
#include "app/flags.h"
#include "app/write_text.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/machine_speed.h"

namespace spry {
namespace {

namespace json = boost::json;

struct MachineFlags {
  int threads = 0;
  std::string json;
};

std::string Size(int64_t bytes) {
  return bytes < (1 << 20) ? fmt::format("{} KiB", bytes >> 10)
                           : fmt::format("{} MiB", bytes >> 20);
}

std::string ReadLine(const ReadSpeed& read) {
  const std::string all =
      read.bytes_each == 0
          ? ""
          : fmt::format("{:8.1f} GB/s ({} each)", read.all_gb_per_s, Size(read.bytes_each));
  return fmt::format("{:<18} {:8.1f} GB/s   {}\n",
                     fmt::format("{}, {}", read.from, Size(read.bytes_one)), read.one_gb_per_s,
                     all);
}

std::string ProductLine(const ProductSpeed& product) {
  return fmt::format("{:<18} {:8.3f} TOP/s  {:8.3f} TOP/s\n", product.isa + " " + product.type,
                     product.one_tops, product.all_tops);
}

json::object ToJson(const MachineSpeed& speed) {
  json::array reads, products;
  for (const ReadSpeed& read : speed.reads) {
    reads.push_back({{"from", read.from},
                     {"bytes_one_thread", read.bytes_one},
                     {"bytes_each_thread", read.bytes_each},
                     {"one_thread_gb_per_s", read.one_gb_per_s},
                     {"all_threads_gb_per_s", read.all_gb_per_s}});
  }
  for (const ProductSpeed& product : speed.products) {
    products.push_back({{"isa", product.isa},
                        {"type", product.type},
                        {"one_thread_tops", product.one_tops},
                        {"all_threads_tops", product.all_tops}});
  }
  return {{"threads", speed.threads}, {"reads", reads}, {"products", products}};
}

Result<int> RunMachine(const MachineFlags& flags) {
  SPRY_RETURN_IF_ERROR(CheckWritable(flags.json));
  const int cores = UsableCores();
  if (flags.threads > cores) {
    return InvalidArgument(fmt::format(
        "--threads {}: this process may use {} core{}, of which more threads measure nothing more",
        flags.threads, cores, cores == 1 ? "" : "s"));
  }
  const int threads = ThreadsOrDefault(flags.threads);
  SPRY_ASSIGN_OR_RETURN(const MachineSpeed speed, MeasureMachine(threads, DetectCpuFeatures()));
  std::string text = fmt::format("{:<18} one thread      {} thread{}\n", "reading", threads,
                                 threads == 1 ? "" : "s");
  for (const ReadSpeed& read : speed.reads) text += ReadLine(read);
  text += "products (a multiply-add is two operations)\n";
  for (const ProductSpeed& product : speed.products) text += ProductLine(product);
  SPRY_RETURN_IF_ERROR(WriteStdout(text));
  if (flags.json.empty()) return kExitDone;
  SPRY_RETURN_IF_ERROR(WriteFile(flags.json, json::serialize(ToJson(speed)) + "\n"));
  return kExitDone;
}

}  // namespace

Command AddBenchMachine(CLI::App& parent) {
  const auto flags = std::make_shared<MachineFlags>();
  CLI::App& parser =
      *parent.add_subcommand("machine", "What the CPU and its memory can do at most");
  parser.footer(
      "One thread is measured, and --threads of them at once, for a few seconds. No kernel can be\n"
      "faster than these, on a machine left alone: the best of several tries counts, and what "
      "else\n"
      "runs takes from it.\n\n"
      "Example:\n  spry bench machine --json machine.json");
  const char* group = "Benchmark";
  AddThreadsFlag(parser, flags->threads, group);
  parser.add_option("--json", flags->json, "Write the results there")
      ->type_name("FILE")
      ->group(group);
  return {.parser = &parser, .run = [flags] { return RunMachine(*flags); }};
}

}  // namespace spry
