// Checks and forms of flag values that CLI11 does not have. Private to src/app.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <limits>
#include <regex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/sampling_params.h"

namespace spry {

// A word that stands for a value of T.
template <typename T>
using Choice = std::pair<const char*, T>;

// A flag that takes one of a few words.
template <typename T, size_t N>
CLI::Option* AddChoice(CLI::App& parser, const std::string& name,
                       const std::array<Choice<T>, N>& choices, T& target,
                       const std::string& help) {
  std::vector<std::string> words;
  for (const Choice<T>& choice : choices) words.emplace_back(choice.first);
  const std::string listed = fmt::format("{}", fmt::join(words, "|"));
  const auto check = [words, listed](const std::string& text) {
    for (const std::string& word : words) {
      if (word == text) return std::string();
    }
    return fmt::format("'{}' is not one of {}", text, listed);
  };
  const auto set = [choices, &target](const std::string& text) {
    for (const Choice<T>& choice : choices) {
      if (text == choice.first) target = choice.second;
    }
  };
  return parser.add_option_function<std::string>(name, set, help)
      ->check(CLI::Validator(check, ""))
      ->type_name(listed);
}

// A number from `low` to `high`.
template <typename T>
CLI::Validator Between(T low, T high) {
  const auto check = [low, high](const std::string& text) {
    T value{};
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) {
      return std::string();
    }
    return fmt::format("'{}' must be a {} from {} to {}", text,
                       std::is_integral_v<T> ? "whole number" : "number", low, high);
  };
  return CLI::Validator(check, "");
}

// The group of flags whose text may be empty, which main refuses for all others.
inline constexpr char kPromptGroup[] = "Prompts";

// Any text but none.
inline CLI::Validator NotEmpty() {
  const auto check = [](const std::string& text) {
    return std::string(text.empty() ? "the value is empty; give one, or leave the flag out" : "");
  };
  return CLI::Validator(check, "");
}

// "*" or an origin as browsers send it, since origins are compared byte by byte: scheme and host in
// lower case, a port unless it is the scheme's own, and no path. vLLM's flag takes a JSON list,
// whose brackets would become part of an origin that nobody has.
inline CLI::Validator Origin() {
  const auto check = [](const std::string& text) {
    static const std::regex form(
        R"([a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?)");
    static const std::regex own_port("http://.*:80|https://.*:443");
    if (text == "*" || (std::regex_match(text, form) && !std::regex_match(text, own_port))) {
      return std::string();
    }
    return fmt::format(
        "'{}' is no origin; give * or origins like https://example.com:8443, by "
        "commas: lower case, no path or slash at the end, no default port",
        text);
  };
  return CLI::Validator(check, "");
}

// An integer of at least `low`.
inline CLI::Validator AtLeast(int64_t low) {
  const auto check = [low](const std::string& text) {
    int64_t value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= low) return std::string();
    return fmt::format("'{}' must be a whole number, {} or more", text, low);
  };
  return CLI::Validator(check, "");
}

// A value of type T that requests may have in `field`, whatever stands in their other ones.
template <typename T, typename Field>
CLI::Validator ForSampling(Field SamplingParams::*field) {
  const auto check = [field](const std::string& text) {
    T value{};
    if (!CLI::detail::lexical_cast(text, value)) return std::string();  // the parser says so
    SamplingParams params{.max_tokens = std::numeric_limits<int>::max(), .prompt_logprobs = 0};
    params.*field = value;
    return CheckRanges(params).message();
  };
  return CLI::Validator(check, "");
}

}  // namespace spry
