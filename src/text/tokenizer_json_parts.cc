#include "text/tokenizer_json_parts.h"

#include <fmt/format.h>

#include "text/split_patterns.h"

namespace spry {
namespace {

constexpr int kMaxNesting = 8;  // of Sequence in Sequence

// The steps of `step`: those of a Sequence (under `key`), flattened, or itself.
Status Flatten(const JsonObject& step, std::string_view key, int depth,
               std::vector<JsonObject>& steps) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
  if (type != "Sequence") {
    steps.push_back(step);
    return {};
  }
  if (depth == kMaxNesting) return step.Unsupported("type", "is a Sequence nested too deep");
  SPRY_ASSIGN_OR_RETURN(const simdjson::dom::array parts, step.Array(key));
  size_t index = 0;
  for (const auto element : parts) {
    SPRY_ASSIGN_OR_RETURN(const JsonObject part, step.ObjectAt(key, index++, element));
    SPRY_RETURN_IF_ERROR(Flatten(part, key, depth + 1, steps));
  }
  return {};
}

}  // namespace

Status UnsupportedType(const JsonObject& step, std::string_view type, std::string_view supported) {
  return step.Unsupported("type", fmt::format("is \"{}\"; supported: {}", type, supported));
}

Result<std::vector<JsonObject>> StepsOf(const JsonObject& root, std::string_view name,
                                        std::string_view sequence_key) {
  std::vector<JsonObject> steps;
  if (!root.Find(name)) return steps;
  SPRY_ASSIGN_OR_RETURN(const JsonObject step, root.Object(name));
  SPRY_RETURN_IF_ERROR(Flatten(step, sequence_key, 0, steps));
  return steps;
}

Result<JsonPattern> ParseJsonPattern(const JsonObject& step) {
  SPRY_ASSIGN_OR_RETURN(const JsonObject pattern, step.Object("pattern"));
  const bool literal = pattern.Find("String").has_value();
  SPRY_ASSIGN_OR_RETURN(const std::string_view text, pattern.String(literal ? "String" : "Regex"));
  return JsonPattern{.text = text, .is_regex = !literal};
}

Result<VocabSource::Split::Marks> ParseMetaspacePrefix(const JsonObject& step) {
  using Marks = VocabSource::Split::Marks;
  SPRY_ASSIGN_OR_RETURN(const std::string_view mark, step.String("replacement", kSpaceMark));
  if (mark != kSpaceMark) {
    return step.Unsupported("replacement",
                            fmt::format("is \"{}\"; supported: \"{}\"", mark, kSpaceMark));
  }
  // Files of before prepend_scheme have add_prefix_space.
  SPRY_ASSIGN_OR_RETURN(const bool prefix, step.Bool("add_prefix_space", true));
  SPRY_ASSIGN_OR_RETURN(const std::string_view scheme,
                        step.String("prepend_scheme", prefix ? "always" : "never"));
  if (scheme == "always") return Marks::kPrefixAll;
  if (scheme == "first") return Marks::kPrefixFirst;
  if (scheme == "never") return Marks::kNoPrefix;
  return step.Unsupported(
      "prepend_scheme",
      fmt::format("is \"{}\"; supported: \"always\", \"first\", \"never\"", scheme));
}

}  // namespace spry
