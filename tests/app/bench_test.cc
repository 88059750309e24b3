// spry bench from outside, on the null device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <boost/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/app/program_run.h"

namespace spry {
namespace {

namespace json = boost::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class BenchTest : public ProgramTest {
 protected:
  BenchTest() { MakeModel("m"); }
  static constexpr const char* kModel = " m --load-format dummy --device null ";
};

TEST_F(BenchTest, LatencyHasVllmsLinesAndKeys) {
  const ProgramResult r =
      Spry(std::string("bench latency") + kModel +
           "--null-step-us 500 --batch-size 4 --output-len 16 --num-iters-warmup 1 --num-iters 3 "
           "--tail-control --output-json out.json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  // Four digits, of which 16 steps of 0.5 ms make the first ones.
  EXPECT_THAT(r.out,
              ContainsRegex("^Avg latency: 0\\.0{1,2}[1-9][0-9]{0,3} seconds\n10% percentile "
                            "latency: 0\\.0{1,2}[1-9][0-9]{0,3} seconds\n25% percentile"));
  const json::object out = json::parse(ReadText(folder_ / "out.json")).as_object();
  const auto latencies = json::value_to<std::vector<double>>(out.at("latencies"));
  ASSERT_EQ(latencies.size(), 3u);
  EXPECT_NEAR(out.at("avg_latency").to_number<double>(),
              std::accumulate(latencies.begin(), latencies.end(), 0.0) / 3, 1e-12);
  for (const char* percent : {"10", "25", "50", "75", "90", "99"}) {
    EXPECT_TRUE(out.at("percentiles").as_object().contains(percent)) << percent;
  }
  // 16 steps of at least 0.5 ms.
  EXPECT_GE(*std::min_element(latencies.begin(), latencies.end()), 16 * 500e-6);

  const json::object& own = out.at("spry").as_object();
  EXPECT_EQ(own.at("prompt_tokens"), 3 * 4 * 32);
  EXPECT_EQ(own.at("output_tokens"), 3 * 4 * 16);
  EXPECT_EQ(own.at("cached_tokens"), 3 * 4 * 16);  // a prompt's last block is computed again
  EXPECT_EQ(own.at("prefix_cache_hit_rate").to_number<double>(), 0.5);
  EXPECT_EQ(own.at("decode_step_us").at("count"), 3 * 15);
  EXPECT_GE(own.at("decode_step_us").at("p50").to_number<double>(), 450.0);
  EXPECT_EQ(own.at("tail_control_us").at("count"), 3 * 15);
}

TEST_F(BenchTest, LatencyWithoutPrefixCachingHasNoHits) {
  const ProgramResult r =
      Spry(std::string("bench latency") + kModel +
           "--output-len 2 --num-iters-warmup 1 --num-iters 1 --no-enable-prefix-caching");
  EXPECT_THAT(r.out, HasSubstr("Prefix cache: 0 of 256 prompt tokens hit (0.0%)"));
}

TEST_F(BenchTest, ThroughputHasVllmsLinesAndKeys) {
  WriteText(folder_ / "lengths.json", R"({"note": "x", "in": [5, 30, 7], "out": [4, 1, 9]})");
  const ProgramResult r = Spry(std::string("bench throughput") + kModel +
                               "--lengths lengths.json --output-json out.json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, ContainsRegex("^Throughput: [0-9.]+ requests/s, [0-9.]+ total tokens/s, "
                                   "[0-9.]+ output tokens/s\nTotal num prompt tokens:  42\nTotal "
                                   "num output tokens:  14\n"));
  const json::object out = json::parse(ReadText(folder_ / "out.json")).as_object();
  EXPECT_EQ(out.at("num_requests"), 3);
  EXPECT_EQ(out.at("total_num_tokens"), 56);
  const double elapsed = out.at("elapsed_time").to_number<double>();
  EXPECT_NEAR(out.at("requests_per_second").to_number<double>() * elapsed, 3.0, 1e-9);
  EXPECT_NEAR(out.at("tokens_per_second").to_number<double>() * elapsed, 56.0, 1e-9);
}

TEST_F(BenchTest, ThroughputRefusesWrongLengths) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"{", "not valid JSON"},
           {"[]", "there is no list \"in\""},
           {R"({"in": [1]})", "there is no list \"out\""},
           {R"({"in": [1, 0], "out": [1, 1]})", "\"in\"[1] is 0"},
           {R"({"in": [1, "2"], "out": [1, 1]})", "\"in\"[1] is \"2\""},
           {R"({"in": [1, 2], "out": [1]})", "\"in\" has 2 lengths and \"out\" 1"},
           {R"({"in": [], "out": []})", "at least one"},
           {R"({"in": [70], "out": [1]})", "the prompt has 70 tokens"}}) {
    WriteText(folder_ / "lengths.json", text);
    const ProgramResult r =
        Spry(std::string("bench throughput") + kModel + "--lengths lengths.json");
    EXPECT_EQ(r.exit_code, 1) << text;
    EXPECT_THAT(r.err, HasSubstr(message));
  }
  const ProgramResult r = Spry(std::string("bench throughput") + kModel);
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("--lengths"));
}

// The bar of a steady step: no heap allocation, blocks growing. Times depend on the machine and
// are not asserted here.
TEST_F(BenchTest, OverheadAllocatesNothing) {
  const ProgramResult r = Spry("bench overhead --rows 1,8,40 --json out.json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::array out = json::parse(ReadText(folder_ / "out.json")).as_array();
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[2].at("rows"), 40);
  for (const json::value& entry : out) {
    EXPECT_GT(entry.at("host_ns_per_step").at("p50").to_number<double>(), 0.0);
    EXPECT_GE(entry.at("host_ns_per_step").at("p99").to_number<double>(),
              entry.at("host_ns_per_step").at("p50").to_number<double>());
    EXPECT_EQ(entry.at("heap_allocations_per_step").to_number<double>(), 0.0);
  }
}

// A figure a line for every shape; the figures depend on the machine.
TEST_F(BenchTest, OpsAreTimedByShape) {
  const ProgramResult gemm =
      Spry("bench gemm --device cpu --threads 1 --weights q8_0 --shapes 64x32,32x96 --rows 1,3");
  ASSERT_EQ(gemm.exit_code, 0) << gemm.err;
  EXPECT_THAT(gemm.out, ContainsRegex("^linear on cpu .*: q8_0 weights, bfloat16; N x K\n"
                                      " +64 x 32 +M 1 +[0-9.-]+ us +[0-9.-]+ GB/s .*\n"
                                      " +64 x 32 +M 3 .*\n +32 x 96 +M 1 .*\n +32 x 96 +M 3 "));

  const ProgramResult attention = Spry(
      "bench attention --device cpu --attention-backend cpu --threads 1 --heads 4 --kv-heads 2 "
      "--head-dim 16 "
      "--decode 2x40,1x300 --prefill 2x24 --peer-us 1,2,1e6");
  ASSERT_EQ(attention.exit_code, 0) << attention.err;
  EXPECT_THAT(attention.out,
              ContainsRegex("^attention on cpu .*: 4/2 heads of 16, bfloat16 with bfloat16 KV, "
                            "blocks of 16; batch x context\ndecode +2 x 40 .*\ndecode +1 x 300 "
                            ".*\nprefill +2 x 24 .* peer 1000000.00 us, ours  0.00x\n"));
}

TEST_F(BenchTest, OpsThatCannotBeTimedAreRefused) {
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"gemm --device null", "the null device computes nothing"},
           {"gemm --device cpu --weights q4_0 --shapes 64x40", "need a multiple of 32"},
           {"attention --device cpu --decode 1x8 --no-prefill --peer-us 1,2",
            "2 times for 1 shape"},
           {"attention --device cpu --heads 3 --kv-heads 2", "H mod Hkv"},
           {"attention --device cpu --attention-backend none", "none"},
           {"attention --device cpu --decode 4096x1048576 --no-prefill", "more tokens than"}}) {
    const ProgramResult r = Spry("bench " + arguments);
    EXPECT_EQ(r.exit_code, 1) << arguments;
    EXPECT_THAT(r.err, HasSubstr(message)) << arguments;
  }
}

// Seconds of the CPU that programs have taken so far.
double ChildrenSeconds() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + 1e-6 * usage.ru_utime.tv_usec;
}

// The machine's limits take seconds.
TEST_F(BenchTest, OpsThatCannotRunAreRefusedBeforeTheMachineIsMeasured) {
  for (const char* arguments : {"gemm --device cpu --shapes 1048576x64 --rows 65536",
                                "attention --device cpu --decode 512x1048576 --no-prefill"}) {
    const double before = ChildrenSeconds();
    const ProgramResult r = Spry(std::string("bench ") + arguments);
    EXPECT_THAT(r.err, HasSubstr("MiB are free")) << arguments;
    EXPECT_LT(ChildrenSeconds() - before, 1.0) << arguments;
  }
}

TEST_F(BenchTest, AFileThatCannotBeWrittenIsKnownBeforeTheWork) {
  const ProgramResult r = Spry(std::string("bench latency") + kModel +
                               "--null-step-us 1000000 --output-json nowhere/out.json");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_EQ(r.err, "spry: nowhere/out.json cannot be written: No such file or directory\n");
}

TEST_F(BenchTest, PerplexityNeedsATokenizer) {
  WriteText(folder_ / "t.txt", "some text");
  const ProgramResult r =
      Spry("bench perplexity m --load-format dummy --device null --max-model-len 16 --file t.txt");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("no tokenizer"));
}

// Every level and every kind of product is measured; how fast they are is the machine's business.
TEST_F(BenchTest, TheMachineHasItsLimits) {
  const ProgramResult r = Spry("bench machine --threads 1 --json machine.json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("avx2 float32"));
  const json::object out = json::parse(ReadText(folder_ / "machine.json")).as_object();
  EXPECT_EQ(out.at("threads"), 1);
  const json::array& reads = out.at("reads").as_array();
  EXPECT_EQ(reads.back().at("from"), "memory");
  for (const json::value& read : reads) {
    EXPECT_GT(read.at("one_thread_gb_per_s").to_number<double>(), 0.1);
  }
  const json::array& products = out.at("products").as_array();
  EXPECT_GE(products.size(), 2u);
  for (const json::value& product : products) {
    EXPECT_GT(product.at("one_thread_tops").to_number<double>(), 1e-3);
  }
}

TEST_F(BenchTest, AProfileSaysWhereAStepsTimeGoes) {
  const std::string flags =
      "bench latency m --load-format dummy --threads 1 --batch-size 2 --input-len 8 --output-len 4 "
      "--num-iters-warmup 0 --num-iters 1 --profile trace.json --device ";
  const ProgramResult r = Spry(flags + "cpu");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, ContainsRegex("Steps with prompts: 1, of 16.0 tokens on average\nop +ops "));
  EXPECT_THAT(r.out, ContainsRegex("Decode steps: 3, of 2.0 tokens on average\nop +ops "));
  EXPECT_THAT(r.out, ContainsRegex("\nattention +[0-9]+ +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9.]+%\n"));
  EXPECT_THAT(r.out, ContainsRegex("\nall +[0-9]+ +[0-9.]+ +100.0% "));

  // Events of the ops lie behind one another, within the event of their step.
  const json::array events =
      json::parse(ReadText(folder_ / "trace.json")).at("traceEvents").as_array();
  constexpr double kRounding = 2e-3;
  double step_end = 0, end = 0;
  int num_steps = 0;
  for (const json::value& event : events) {
    const double begin = event.at("ts").to_number<double>();
    const double stop = begin + event.at("dur").to_number<double>();
    if (event.at("tid") == 1) {
      EXPECT_GE(begin + kRounding, step_end);
      ++num_steps;
      step_end = stop;
      end = begin;
    } else {
      EXPECT_NEAR(begin, end, kRounding);
      end = stop;
      EXPECT_LE(end, step_end + kRounding);
    }
  }
  EXPECT_EQ(num_steps, 4);
  const ProgramResult refused = Spry(flags + "null");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("only the CPU runs a step op by op"));
  EXPECT_EQ(refused.out, "");
}

}  // namespace
}  // namespace spry
