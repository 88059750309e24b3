// Runs the spry program as a user does, and small models in a folder of their own.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace spry {

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void WriteText(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

// A test with a folder that goes away, and the program.
class ProgramTest : public ::testing::Test {
 protected:
  // `command` is shell text in which $SPRY is the program, run in the test's folder.
  ProgramResult Shell(const std::string& command) {
    const std::string line = "cd '" + folder_.string() + "' && SPRY='" SPRY_PROGRAM "' && { " +
                             command + " ; } >.out 2>.err </dev/null";
    const int status = std::system(line.c_str());
    return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = ReadText(folder_ / ".out"),
            .err = ReadText(folder_ / ".err")};
  }
  ProgramResult Spry(const std::string& arguments) { return Shell("\"$SPRY\" " + arguments); }

  // A tiny OPT with dummy weights and no tokenizer: 512 ids, at most 64 tokens.
  void MakeModel(const std::string& name) {
    std::filesystem::create_directory(folder_ / name);
    WriteText(folder_ / name / "config.json",
              R"({"architectures": ["OPTForCausalLM"], "model_type": "opt",
                  "activation_function": "relu", "bos_token_id": 2, "eos_token_id": 2,
                  "max_position_embeddings": 64, "vocab_size": 512, "torch_dtype": "float32",
                  "hidden_size": 16, "ffn_dim": 32, "num_hidden_layers": 2,
                  "num_attention_heads": 2, "word_embed_proj_dim": 16,
                  "do_layer_norm_before": true})");
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

}  // namespace spry
