#include "server/echo_offsets.h"

#include <algorithm>

#include "server/json_writer.h"
#include "text/detokenizer.h"

namespace spry {

int64_t CountCharacters(std::string_view text) {
  // All bytes but those that go on with a character, which are 10xxxxxx.
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void MakeEcho(ApiPrompt& prompt) {
  prompt.echo_characters = CountCharacters(prompt.text);
  AppendEscaped(prompt.text, prompt.echo);
  std::string().swap(prompt.text);
}

std::vector<int64_t> EchoOffsets(const ApiPrompt& prompt, const Tokenizer* tokenizer,
                                 bool skip_special_tokens) {
  std::vector<int64_t> offsets(prompt.ids.size());
  if (tokenizer == nullptr) return offsets;
  Detokenizer detokenizer(*tokenizer, skip_special_tokens && !prompt.spelled_special);
  std::string spelled;
  int64_t characters = 0;
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    offsets[i] = characters;
    if (static_cast<int>(i) < prompt.added) continue;
    spelled.clear();
    detokenizer.Append(prompt.ids[i], spelled);
    characters += CountCharacters(spelled);
  }
  return offsets;
}

}  // namespace spry
