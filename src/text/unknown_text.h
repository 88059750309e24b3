// What becomes of text that no piece covers: its bytes, where the vocabulary has pieces for all of
// them, or one unknown token for a whole run.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

class UnknownText {
 public:
  // Refuses a vocabulary that has neither an unknown token nor all byte pieces.
  static Result<UnknownText> Create(const VocabSource& source);

  // What one call of Encode remembers: whether the last token was the unknown one.
  struct Run {
    bool open = false;
  };
  void Append(std::string_view text, Run& run, std::vector<TokenId>& ids) const;

 private:
  std::array<int32_t, 256> byte_tokens_{};  // -1: no such piece
  int32_t unknown_ = -1;
};

}  // namespace spry
