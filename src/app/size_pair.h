// Flags that take a list of pairs, "8x160,64x1024".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace spry {

struct SizePair {
  int64_t first = 0;
  int64_t second = 0;
};

// Both from 1 to 2^24.
Result<SizePair> ParseSizePair(std::string_view text);

// A flag that replaces `pairs`.
CLI::Option* AddSizePairs(CLI::App& parser, const std::string& name, std::vector<SizePair>& pairs,
                          const std::string& help);

}  // namespace spry
