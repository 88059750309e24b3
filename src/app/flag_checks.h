// Checks and forms of flag values that CLI11 does not have. Private to src/app.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <system_error>
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

// A number in decimal. CLI11 converts the text once it was checked, and takes a leading zero for
// octal and what is too large for the largest number, so neither may get that far.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (std::is_integral_v<T> && digits.size() > 1 && digits[0] == '0') return std::nullopt;
  return value;
}

// What is wrong with a text that is none of the numbers `range`, " from 1 to 8".
template <typename T>
std::string NotANumber(const std::string& text, std::string_view range) {
  static const std::regex other_base("-?0[0-9xX].*");
  return fmt::format(
      "'{}' must be a {}{}{}", text, std::is_integral_v<T> ? "whole number" : "number", range,
      std::regex_match(text, other_base) ? ", in decimal without a leading zero" : "");
}

// A number from `low` to `high`, which the flag's type can hold.
template <typename T>
CLI::Validator Between(T low, T high) {
  const auto check = [low, high](const std::string& text) {
    const std::optional<T> value = ParseNumber<T>(text);
    if (value && *value >= low && *value <= high) return std::string();
    return NotANumber<T>(text, fmt::format(" from {} to {}", low, high));
  };
  return CLI::Validator(check, "");
}

// A whole number of at least `low`, of the flag's type.
template <typename T>
CLI::Validator AtLeast(T low) {
  return Between(low, std::numeric_limits<T>::max());
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

// A value of type T that requests may have in `field`, whatever stands in their other ones.
template <typename T, typename Field>
CLI::Validator ForSampling(Field SamplingParams::*field) {
  const auto check = [field](const std::string& text) {
    const std::optional<T> value = ParseNumber<T>(text);
    if (!value) {
      return NotANumber<T>(text, std::is_integral_v<T>
                                     ? fmt::format(" up to {}", std::numeric_limits<T>::max())
                                     : "");
    }
    SamplingParams params{.max_tokens = std::numeric_limits<int>::max(), .prompt_logprobs = 0};
    params.*field = *value;
    return CheckRanges(params).message();
  };
  return CLI::Validator(check, "");
}

}  // namespace spry
