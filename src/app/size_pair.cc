#include "app/size_pair.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

namespace spry {

Result<SizePair> ParseSizePair(std::string_view text) {
  constexpr int64_t kMost = 1 << 24;
  SizePair pair;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, pair.first);
  const bool has_x = first.ec == std::errc() && first.ptr != end && *first.ptr == 'x';
  const auto second = has_x ? std::from_chars(first.ptr + 1, end, pair.second) : first;
  const auto in_range = [](int64_t size) { return size >= 1 && size <= kMost; };
  if (!has_x || second.ec != std::errc() || second.ptr != end || !in_range(pair.first) ||
      !in_range(pair.second)) {
    return InvalidArgument(
        fmt::format("'{}' must be two numbers from 1 to {} with an x between", text, kMost));
  }
  return pair;
}

CLI::Option* AddSizePairs(CLI::App& parser, const std::string& name, std::vector<SizePair>& pairs,
                          const std::string& help) {
  const auto check = [](const std::string& text) { return ParseSizePair(text).status().message(); };
  const auto set = [&pairs](const std::vector<std::string>& texts) {
    pairs.clear();
    for (const std::string& text : texts) pairs.push_back(*ParseSizePair(text));
  };
  return parser.add_option_function<std::vector<std::string>>(name, set, help)
      ->check(CLI::Validator(check, ""))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
}

}  // namespace spry
