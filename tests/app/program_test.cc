// The program as a whole: help, versions, wrong command lines, inspect and backends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/app/program_run.h"

namespace spry {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ProgramTest, VersionAndHelp) {
  EXPECT_THAT(Spry("--version").out, ::testing::ContainsRegex("^spry [0-9]+\\.[0-9]+\\.[0-9]+\n$"));
  for (const char* command : {"", "generate", "chat", "bench", "bench latency", "bench throughput",
                              "bench overhead", "bench attention", "bench gemm", "bench perplexity",
                              "bench machine", "inspect", "backends"}) {
    const ProgramResult r = Spry(std::string(command) + " --help");
    EXPECT_EQ(r.exit_code, 0) << command;
    EXPECT_THAT(r.out, HasSubstr("Example")) << command;
    EXPECT_THAT(r.out, HasSubstr(std::string("  spry ") + command)) << command;
    EXPECT_EQ(r.err, "");
  }
}

TEST_F(ProgramTest, WrongCommandLinesAreOneLineAndTwo) {
  for (const char* arguments :
       {"", "bench", "fly", "generate", "generate m --fly", "generate m --max-tokens x",
        "generate m --device gpu", "bench latency m --num-iters 0", "bench overhead --rows 0",
        "bench overhead --device cpu", "bench gemm --shapes 8", "bench attention --decode 0x1",
        "bench throughput m --lengths f --input-len 3", "inspect m --json --program"}) {
    const ProgramResult r = Spry(arguments);
    EXPECT_EQ(r.exit_code, 2) << arguments;
    EXPECT_THAT(r.err, StartsWith("spry: ")) << arguments;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_EQ(r.out, "");
  }
}

TEST_F(ProgramTest, WhatIsUnknownIsNamed) {
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"",
            "spry: a command is missing; give one of bench, generate, chat, serve, inspect, "
            "backends (see spry --help)"},
           {"bench", "spry: a command is missing; give one of latency, throughput, overhead, "},
           {"fly", "there is no command 'fly'; give one of bench, "},
           {"bench fly", "there is no command 'fly'; give one of latency, "},
           {"-hf some/model", "there is no flag -hf"},
           {"serve -hf some/model", "there is no flag -hf"},
           {"generate m --fly 2", "there is no flag --fly (see spry generate --help)"},
           {"generate m --max-tokens 1 2", "'2' was not expected"},
           {"-v", "there is no flag -v"},
           // Another server's flags.
           {"serve --model m --port 1", "there is no flag --model; name the model without a flag"},
           {"serve m --ctx-size 9", "there is no flag --ctx-size; use --max-model-len"},
           {"serve m --jinja", "there is no flag --jinja; spry needs no such flag"},
           {"serve m --temp 1", "there is no flag --temp (see spry serve --help)"},
           {"generate m --temp 1", "there is no flag --temp; use --temperature"},
           {"generate m --max_tokens=1", "there is no flag --max_tokens; use --max-tokens"},
           {"generate m -n 1", "there is no flag -n; use --max-tokens"},
           {"generate m -max_tokens 1", "there is no flag -max_tokens; use --max-tokens"},
           {"generate m --ignore-eos=maybe", "--ignore-eos: 'maybe' must be true or false"},
           {"generate m --json=foo", "--json: 'foo' must be true or false; the flag alone"},
           {"--threads 1 generate m", "--threads belongs behind spry generate (see"},
           {"--port=8000 serve m", "--port belongs behind spry serve (see"},
           {"generate m \u2014max-tokens 1", "'\u2014max-tokens' does not begin with '-' or '--'"},
           {"generate m -\u2013prompt a", "'-\u2013prompt' does not begin with"},
           {"generate m --n_predict 1", "there is no flag --n_predict; use --max-tokens"},
           {"generate m --max-tokens 3 --bogus 3", "there is no flag --bogus (see"},
           {"backends -m x", "there is no flag -m (see spry backends --help)"},
           {"serve m --enforce-eager", "use --graph-mode none (see spry serve --help)"},
           {"serve m --tensor-parallel-size=2", "there is no flag --tensor-parallel-size; spry"},
           {"generate m --max-model-len 4k", "'4k' must be a whole number from 2 to"},
           {"generate m --seed 18446744073709551616",
            "a whole number from 0 to 18446744073709551615"},
           {"generate m --seed 1e3", "a whole number from 0"}}) {
    const ProgramResult r = Spry(arguments);
    EXPECT_EQ(r.exit_code, 2) << arguments;
    EXPECT_THAT(r.err, HasSubstr(message)) << arguments;
  }
}

// Every flag of every command whose help says that it takes a number.
TEST_F(ProgramTest, NumbersAreDecimalAndRefusedInOneWay) {
  const std::regex flag_form("  (?:-n,)?(--[a-z-]+) (INT|UINT|FLOAT)( \\.\\.\\.)?\\b.*");
  int flags = 0;
  for (const char* command :
       {"generate m", "chat m", "serve m", "bench latency m", "bench throughput m",
        "bench overhead", "bench attention", "bench gemm", "bench perplexity m", "bench machine"}) {
    std::istringstream help(Spry(std::string(command) + " --help").out);
    for (std::string line; std::getline(help, line);) {
      std::smatch found;
      if (!std::regex_match(line, found, flag_form)) continue;
      ++flags;
      const std::string flag = found[1];
      const bool is_whole = found[2] != "FLOAT";
      std::vector<std::string> wrong = {"abc", "0x10", "8x", "1,5x"};
      if (is_whole) {
        wrong.insert(wrong.end(), {"1.5", "1e3", "nan", "010", "99999999999999999999"});
      }
      for (const std::string& text : wrong) {
        const std::string given = std::string(command) + " " + flag + "=" + text;
        const ProgramResult r = Spry(given);
        EXPECT_EQ(r.exit_code, 2) << given;
        EXPECT_THAT(r.err, StartsWith("spry: " + flag + ": '")) << given;
        EXPECT_THAT(r.err, HasSubstr(is_whole ? "' must be a whole number " : "' must be a number"))
            << given;
        EXPECT_EQ(r.err.find("in decimal") != std::string::npos, text[0] == '0') << r.err;
      }
    }
  }
  EXPECT_GT(flags, 100);
  EXPECT_THAT(Spry("bench attention --peer-us 1,x").err, StartsWith("spry: --peer-us: 'x' must"));
  EXPECT_THAT(Spry("generate m --max-tokens 010").err,
              StartsWith("spry: --max-tokens: '010' must be a whole number up to 2147483647, in "
                         "decimal without a leading zero (see "));
  EXPECT_THAT(Spry("serve --help").out, Not(HasSubstr("INT:INT")));
}

// Whatever prints says so when nobody can read it.
TEST_F(ProgramTest, AClosedOrFullStdoutIsAnError) {
  MakeModel("m");
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [5], \"max_tokens\": 3}\n");
  const std::string model = " m --load-format dummy --device null ";
  for (const std::string& command :
       {std::string("--version"), std::string("--help"), std::string("serve --help"),
        "generate" + model + "--input in.jsonl", "generate" + model + "--input in.jsonl --json",
        "inspect" + model, "inspect" + model + "--json", "inspect" + model + "--program",
        std::string("backends"),
        "bench latency" + model + "--num-iters 1 --num-iters-warmup 0 --output-len 2",
        std::string("bench overhead --steps 1 --rows 1"),
        std::string("bench gemm --device cpu --shapes 64x64 --rows 1")}) {
    for (const auto& [to, why] : {std::pair(">&-", "Bad file descriptor"),
                                  std::pair(">/dev/full", "No space left on device")}) {
      const ProgramResult r = Shell("\"$SPRY\" " + command + " 2>err " + to);
      EXPECT_EQ(r.exit_code, 1) << command;
      EXPECT_THAT(ReadText(folder_ / "err"),
                  ::testing::EndsWith(std::string("spry: stdout cannot be written: ") + why + "\n"))
          << command;
    }
  }
}

// Its messages go to a pipe, since a file would not take them either.
TEST_F(ProgramTest, AFileThatMayNotGrowIsAnError) {
  EXPECT_THAT(Shell("(ulimit -f 0; \"$SPRY\" --help 2>&1 >full) | cat").out,
              HasSubstr("spry: stdout cannot be written: File too large\n"));
  EXPECT_THAT(
      Shell("(ulimit -f 0; \"$SPRY\" bench overhead --steps 1 --rows 1 --json full 2>&1) | cat")
          .out,
      HasSubstr("spry: full cannot be written: File too large\n"));
}

TEST_F(ProgramTest, EmptyValuesAreRefusedByName) {
  for (const char* flag :
       {"--host", "--port", "--uds", "--ssl-certfile", "--ssl-keyfile", "--api-key",
        "--allowed-origins", "--served-model-name", "--chat-template", "--max-queue",
        "--shutdown-timeout", "--attention-backend", "--max-model-len"}) {
    for (const std::string& form : {std::string(flag) + " ''", std::string(flag) + "=''"}) {
      const ProgramResult r = Spry("serve m " + form);
      EXPECT_EQ(r.exit_code, 2) << form;
      EXPECT_THAT(r.err, StartsWith(std::string("spry: ") + flag + ":")) << form;
      EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    }
  }
  EXPECT_EQ(
      Spry("serve ''").err,
      "spry: MODEL: the value is empty; give one, or leave the flag out (see spry serve --help)\n");
  for (const char* flag : {"--allowed-token-ids", "--stop-token-ids", "--stop", "--bad-words",
                           "--temperature", "--max-tokens", "--seed", "--logit-bias"}) {
    const ProgramResult r = Spry(std::string("generate m ") + flag + " ''");
    EXPECT_EQ(r.exit_code, 2) << flag;
    EXPECT_THAT(r.err, StartsWith(std::string("spry: ") + flag + ":"));
  }
}

// vLLM's form, and what browsers never send.
TEST_F(ProgramTest, OriginsThatNobodyHasAreRefused) {
  for (const char* origins :
       {R"('["http://page"]')", "page", "http://page/", "http://page/path", "http://page,http://b/",
        "http://Page", "http://page:80", "https://page:443", "http://me@page", "'http://page?'",
        "http://", "http://page:", "'http://a b'"}) {
    const ProgramResult r = Spry(std::string("serve m --allowed-origins ") + origins);
    EXPECT_EQ(r.exit_code, 2) << origins;
    EXPECT_THAT(r.err, StartsWith("spry: --allowed-origins: '")) << origins;
    EXPECT_THAT(r.err, HasSubstr("is no origin; give * or origins like https://")) << origins;
  }
  for (const char* origins :
       {"'*'", "http://page", "https://page.example:8443,http://page:443", "'http://[::1]:3000'",
        "capacitor://localhost", "chrome-extension://abcdefgh"}) {
    const ProgramResult r =
        Spry(std::string("serve nowhere --port 0 --device null --allowed-origins ") + origins);
    EXPECT_EQ(r.exit_code, 1) << origins;
    EXPECT_THAT(r.err, StartsWith("spry: nowhere: ")) << origins;
  }
}

TEST_F(ProgramTest, AFaultyChatTemplateIsNamed) {
  MakeModel("m");
  WriteText(folder_ / "t.jinja", "{{ 'a' }}\n{% for %}\n");
  const std::string serve = "serve m --load-format dummy --device null --port 0 --chat-template ";
  const ProgramResult faulty = Spry(serve + "t.jinja");
  EXPECT_EQ(faulty.exit_code, 1);
  EXPECT_THAT(faulty.err, HasSubstr("spry: --chat-template t.jinja: "));
  EXPECT_THAT(faulty.err, HasSubstr("line 2"));
  const ProgramResult missing = Spry(serve + "no.jinja");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("spry: --chat-template no.jinja cannot be opened: No such"));
}

TEST_F(ProgramTest, AMissingModelIsOneLineAndOne) {
  for (const char* command :
       {"generate nowhere --prompt x", "bench latency nowhere", "inspect nowhere",
        "bench throughput nowhere --input-len 1 --output-len 1"}) {
    const ProgramResult r = Spry(std::string(command) + " --device null");
    EXPECT_EQ(r.exit_code, 1) << command;
    EXPECT_THAT(r.err, StartsWith("spry: nowhere: ")) << command;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  }
}

// On one CPU, so that two threads are too many on any machine.
TEST_F(ProgramTest, MoreThreadsThanCoresAreToldOrRefused) {
  MakeModel("m");
  WriteText(folder_ / "in.jsonl", "{\"prompt_token_ids\": [5], \"max_tokens\": 1}\n");
  const std::string on_one_cpu =
      "taskset -c $(taskset -pc $$ | sed 's/.*: //; s/[-,].*//') \"$SPRY\" ";
  const std::string generate =
      on_one_cpu + "generate m --load-format dummy --device cpu --input in.jsonl";
  const ProgramResult two = Shell(generate + " --threads 2");
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_THAT(two.err, HasSubstr(" warning --threads is more than the cores that this process may "
                                 "use threads=2 cores=1\n"));
  for (const char* threads : {"", " --threads 1"}) {
    const ProgramResult one = Shell(generate + threads);
    EXPECT_EQ(one.exit_code, 0) << one.err;
    EXPECT_THAT(one.err, Not(HasSubstr("warning")));
  }
  EXPECT_THAT(Shell(on_one_cpu + "generate m --load-format dummy --device null --input in.jsonl "
                                 "--threads 2")
                  .err,
              Not(HasSubstr("warning")));
  const ProgramResult machine = Shell(on_one_cpu + "bench machine --threads 2");
  EXPECT_EQ(machine.exit_code, 1);
  EXPECT_EQ(machine.err,
            "spry: --threads 2: this process may use 1 core, of which more threads measure nothing "
            "more\n");
}

TEST_F(ProgramTest, AFolderWithoutWeightsNamesTheFlag) {
  MakeModel("m");
  EXPECT_THAT(Spry("generate m --prompt x --device null").err,
              HasSubstr("m: no weights; expected "));
  EXPECT_THAT(Spry("generate m --prompt x --device null").err,
              HasSubstr("; --load-format dummy makes random ones\n"));
}

TEST_F(ProgramTest, APlanThatDoesNotFitNamesTheFlag) {
  MakeModel("m");
  const ProgramResult r = Spry(
      "inspect m --load-format dummy --device null --max-model-len 64 --kv-cache-memory-bytes 1K");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("--kv-cache-memory-bytes"));
}

TEST_F(ProgramTest, InspectShowsModelTensorsAndPlan) {
  MakeModel("m");
  const ProgramResult text = Spry("inspect m --load-format dummy --device null");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("architecture: OPTForCausalLM"));
  EXPECT_THAT(text.out, HasSubstr("model.decoder.layers.1.fc2.weight"));
  EXPECT_THAT(text.out, HasSubstr("tokenizer: none"));
  EXPECT_THAT(text.out, HasSubstr("memory plan: weights"));

  const ProgramResult machine = Spry("inspect m --load-format dummy --device null --json");
  const json::object report = json::parse(machine.out).as_object();
  EXPECT_EQ(report.at("config").at("vocab_size"), 512);
  EXPECT_EQ(report.at("memory_plan").at("max_model_len"), 64);
  int64_t elements = 0;
  for (const json::value& tensor : report.at("tensors").as_array()) {
    int64_t count = 1;
    for (const json::value& size : tensor.at("shape").as_array()) count *= size.to_number<int>();
    elements += count;
  }
  // Embedding, positions (2 more than 64), and per layer four projections, MLP and two norms.
  constexpr int64_t kE = 16, kF = 32;
  constexpr int64_t kLayer = 4 * (kE * kE + kE) + 2 * kE * kF + kE + kF + 4 * kE;
  EXPECT_EQ(elements, 512 * kE + 66 * kE + 2 * kLayer + 2 * kE);
  int64_t total = 0;
  for (const json::key_value_pair& pair : report.at("totals").as_object()) {
    total += pair.value().at("elements").to_number<int64_t>();
  }
  EXPECT_EQ(total, elements);
}

TEST_F(ProgramTest, QuantizedDummiesShowInInspectAndPlan) {
  MakeModel("m");
  ASSERT_EQ(Shell("sed -i 's/: 16/: 64/' m/config.json").exit_code, 0);
  const std::string flags = "m --load-format dummy --device cpu --quantization q4_0";
  const ProgramResult r = Spry("inspect " + flags + " --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::object report = json::parse(r.out).as_object();
  constexpr int64_t kE = 64, kF = 32;
  constexpr int64_t kMatrices = 512 * kE + 2 * (4 * kE * kE + 2 * kE * kF);
  EXPECT_EQ(report.at("totals").at("Q4_0").at("elements"), kMatrices);
  // The embedding is there twice, to look up and to multiply; positions and vectors are float32.
  constexpr int64_t kVectors = 2 * (4 * kE + kE + kF + 4 * kE) + 2 * kE;
  EXPECT_EQ(report.at("memory_plan").at("weights_bytes"),
            (kMatrices + 512 * kE) * 18 / 32 + 66 * kE * 4 + kVectors * 4);
  const ProgramResult run = Spry("bench latency " + flags +
                                 " --input-len 4 --output-len 4 --num-iters 1 "
                                 "--num-iters-warmup 0 --batch-size 1");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const ProgramResult unknown = Spry("inspect m --load-format dummy --quantization q4_1");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--quantization"));
}

TEST_F(ProgramTest, InspectPrintsTheProgram) {
  MakeModel("m");
  const ProgramResult r = Spry("inspect m --load-format dummy --device null --program");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  for (const char* op : {"embed(", "write_kv(", "attention(", "sample(", "advance("}) {
    EXPECT_THAT(r.out, HasSubstr(op));
  }
}

TEST_F(ProgramTest, BackendsListsEveryDeviceOrWhyNot) {
  const ProgramResult r = Spry("backends");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_THAT(r.out, ::testing::ContainsRegex("(^|\n)cpu: "));
  EXPECT_THAT(r.out, HasSubstr("null: computes nothing"));
  EXPECT_THAT(r.out, ::testing::ContainsRegex("(^|\n)cuda: "));
  EXPECT_THAT(r.out, HasSubstr("head sizes any"));
}

TEST_F(ProgramTest, GraphFlagsAreRefusedWhereThereAreNoGraphs) {
  MakeModel("m");
  const std::string inspect = "inspect m --load-format dummy --device null ";
  for (const char* harmless : {"--graph-mode none", "--graph-mode auto"}) {
    EXPECT_EQ(Spry(inspect + harmless).exit_code, 0) << harmless;
  }
  EXPECT_EQ(Spry(inspect + "--graph-mode full").err,
            "spry: --graph-mode full needs --device cuda; the null device has no graphs\n");
  EXPECT_EQ(Spry(inspect + "--graph-mode piecewise --splitting-ops attention").err,
            "spry: --graph-mode piecewise needs --device cuda; the null device has no graphs\n");
  EXPECT_EQ(Spry(inspect + "--splitting-ops attention").err,
            "spry: --splitting-ops is for --graph-mode piecewise\n");
  const ProgramResult unknown = Spry(inspect + "--graph-mode piecewise --splitting-ops softmax");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("'softmax' is no op; ops are stage, embed"));
}

// A copy of the program has no plug-in beside it.
TEST_F(ProgramTest, CudaWithoutItsPluginSaysSo) {
  MakeModel("m");
  const ProgramResult r = Shell(
      "cp \"$SPRY\" spry && ./spry backends && ./spry inspect m --load-format dummy --device cuda");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.out, HasSubstr("cuda: not available: libspry_cuda.so was not found"));
  EXPECT_THAT(r.err, StartsWith("spry: libspry_cuda.so was not found"));
}

}  // namespace
}  // namespace spry
