// What the program says on the null device with ProgramTest's model: known beforehand, as ids and,
// with the tokenizer here, as text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "device/null/null_device.h"
#include "tests/app/program_run.h"

namespace spry {

inline constexpr int kVocab = 512;  // of MakeModel

// What the null device answers to `prompt`.
inline std::vector<int> Expected(std::vector<int> prompt, int count) {
  std::vector<int> outputs;
  int token = prompt.back();
  int position = static_cast<int>(prompt.size()) - 1;
  for (int i = 0; i < count; ++i) {
    token = NullToken(token, position++, kVocab);
    outputs.push_back(token);
  }
  return outputs;
}

// A vocabulary in which id i is the i-th letter of a.. (then of A..), one letter each.
inline void AddTokenizer(const std::filesystem::path& folder) {
  std::string vocab = "{";
  for (int i = 0; i < 26; ++i) {
    vocab += (i == 0 ? "\"" : ",\"") + std::string(1, static_cast<char>('a' + i)) +
             "\":" + std::to_string(i);
  }
  for (int i = 26; i < kVocab; ++i)
    vocab += ",\"<" + std::to_string(i) + ">\":" + std::to_string(i);
  WriteText(folder / "vocab.json", vocab + "}");
  WriteText(folder / "merges.txt", "#version: 0.2\n");
}

inline std::string Spelled(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += "<" + std::to_string(id) + ">";
  return text;
}

}  // namespace spry
