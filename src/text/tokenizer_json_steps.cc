#include <fmt/format.h>

#include <cctype>

#include "text/split_patterns.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_json_parts.h"
#include "text/unicode_tables.h"

namespace spry {
namespace {

using Behavior = VocabSource::Split::Behavior;

// A pattern that matches `text` and nothing else.
std::string Literally(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !std::isalnum(byte)) {
      pattern += fmt::format("\\x{{{:x}}}", byte);
    } else {
      pattern += c;
    }
  }
  return pattern;
}

Result<VocabSource::Split> ParseSplit(const JsonObject& step) {
  VocabSource::Split split;
  SPRY_ASSIGN_OR_RETURN(const JsonPattern pattern, ParseJsonPattern(step));
  split.pattern = pattern.is_regex ? std::string(pattern.text) : Literally(pattern.text);
  SPRY_ASSIGN_OR_RETURN(const std::string_view behavior, step.String("behavior"));
  SPRY_ASSIGN_OR_RETURN(const bool invert, step.Bool("invert", false));
  if (behavior == "Isolated") return split;
  if (behavior == "Removed") {
    split.behavior = invert ? Behavior::kMatchesOnly : Behavior::kRemoved;
    return split;
  }
  if (behavior == "MergedWithPrevious" && !invert) {
    split.behavior = Behavior::kMergedWithPrevious;
  } else if (behavior == "MergedWithNext" && !invert) {
    split.behavior = Behavior::kMergedWithNext;
  } else {
    return step.Unsupported(
        "behavior", fmt::format("is \"{}\" with invert {}; supported: \"Isolated\", \"Removed\", "
                                "and \"MergedWithPrevious\" and \"MergedWithNext\" with invert "
                                "false",
                                behavior, invert));
  }
  return split;
}

Result<VocabSource::Split> ParseDigits(const JsonObject& step) {
  SPRY_ASSIGN_OR_RETURN(const bool alone, step.Bool("individual_digits", false));
  VocabSource::Split split;
  split.pattern = DigitPattern();
  if (!alone) split.pattern += '+';
  return split;
}

Result<VocabSource::Split> ParsePunctuation(const JsonObject& step) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view behavior, step.String("behavior", "Isolated"));
  if (behavior != "Isolated" && behavior != "Contiguous") {
    return step.Unsupported(
        "behavior", fmt::format("is \"{}\"; supported: \"Isolated\", \"Contiguous\"", behavior));
  }
  VocabSource::Split split;
  split.pattern = PunctuationPattern();
  if (behavior == "Contiguous") split.pattern += '+';
  return split;
}

// ByteLevel spells the text in its alphabet, so the steps after it see that.
Status ParseByteLevel(const JsonObject& step, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(source.add_prefix_space, step.Bool("add_prefix_space", true));
  if (source.add_prefix_space && !source.splits.empty()) {
    return step.Unsupported("add_prefix_space",
                            "is true behind another step; supported: true in the first step only");
  }
  SPRY_ASSIGN_OR_RETURN(const bool use_regex, step.Bool("use_regex", true));
  VocabSource::Split split;
  split.pattern = kGpt2Pattern;
  if (use_regex) source.splits.push_back(split);
  return {};
}

// Metaspace: marks, then (by default) a cut in front of each mark.
Status ParseMetaspace(const JsonObject& step, VocabSource& source) {
  VocabSource::Split split;
  SPRY_ASSIGN_OR_RETURN(split.marks, ParseMetaspacePrefix(step));
  source.splits.push_back(split);
  SPRY_ASSIGN_OR_RETURN(const bool cut, step.Bool("split", true));
  if (!cut) return {};
  split.marks = VocabSource::Split::Marks::kNone;
  split.pattern = kSpaceMark;
  split.behavior = Behavior::kMergedWithNext;
  source.splits.push_back(std::move(split));
  return {};
}

Result<VocabSource::Split> ParseCut(const JsonObject& step, std::string_view type) {
  if (type == "Split") return ParseSplit(step);
  if (type == "Digits") return ParseDigits(step);
  if (type == "Punctuation") return ParsePunctuation(step);
  if (type != "WhitespaceSplit") {
    return UnsupportedType(
        step, type, "ByteLevel, Metaspace, Split, Digits, Punctuation, WhitespaceSplit, Sequence");
  }
  VocabSource::Split split;
  split.pattern = R"(\s)";
  split.behavior = Behavior::kRemoved;
  return split;
}

Status ParsePreTokenizer(const JsonObject& root, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const auto steps, StepsOf(root, "pre_tokenizer", "pretokenizers"));
  bool byte_level = false;
  bool metaspace = false;
  for (const JsonObject& step : steps) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
    if (type == "ByteLevel" || type == "Metaspace") {
      if (byte_level || metaspace) {
        return step.Unsupported("type", "is a second of ByteLevel and Metaspace; supported: one");
      }
      (type == "ByteLevel" ? byte_level : metaspace) = true;
      SPRY_RETURN_IF_ERROR(byte_level ? ParseByteLevel(step, source)
                                      : ParseMetaspace(step, source));
      continue;
    }
    SPRY_ASSIGN_OR_RETURN(VocabSource::Split split, ParseCut(step, type));
    split.byte_level = byte_level;
    source.splits.push_back(std::move(split));
  }
  source.model = byte_level ? VocabSource::Model::kByteLevelBpe : VocabSource::Model::kBpe;
  return {};
}

// The id of special token `name` in a TemplateProcessing.
Result<TokenId> TemplateToken(const JsonObject& step, std::string_view name) {
  SPRY_ASSIGN_OR_RETURN(const JsonObject tokens, step.Object("special_tokens"));
  SPRY_ASSIGN_OR_RETURN(const JsonObject token, tokens.Object(name));
  SPRY_ASSIGN_OR_RETURN(const simdjson::dom::array ids, token.Array("ids"));
  if (ids.size() != 1) return token.Unsupported("ids", "does not have one id; supported: one");
  SPRY_ASSIGN_OR_RETURN(const int32_t id, TokenIdIn(ids.at(0).value_unsafe(), token.PathOf("ids")));
  return TokenId(id);
}

// `single` may be: token in front (bos), the text, token behind (eos).
Status ParseTemplate(const JsonObject& step, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const simdjson::dom::array parts, step.Array("single"));
  constexpr std::string_view kSupported =
      "is not [token, A, token] with at most one token on each side, which alone is supported";
  bool text_seen = false;
  size_t index = 0;
  for (const auto element : parts) {
    SPRY_ASSIGN_OR_RETURN(const JsonObject part, step.ObjectAt("single", index++, element));
    if (part.Find("Sequence")) {
      if (text_seen) return step.Unsupported("single", kSupported);
      text_seen = true;
      continue;
    }
    SPRY_ASSIGN_OR_RETURN(const JsonObject special, part.Object("SpecialToken"));
    SPRY_ASSIGN_OR_RETURN(const std::string_view name, special.String("id"));
    SPRY_ASSIGN_OR_RETURN(const TokenId id, TemplateToken(step, name));
    bool& add = text_seen ? source.add_eos : source.add_bos;
    if (add) return step.Unsupported("single", kSupported);
    add = true;
    (text_seen ? source.eos : source.bos) = id;
  }
  if (!text_seen) return step.Unsupported("single", kSupported);
  return {};
}

Status ParsePostProcessor(const JsonObject& root, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const auto steps, StepsOf(root, "post_processor", "processors"));
  bool seen = false;
  for (const JsonObject& step : steps) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
    if (type == "ByteLevel") continue;  // moves offsets, not ids
    if (type != "TemplateProcessing") {
      return UnsupportedType(step, type, "ByteLevel, TemplateProcessing, Sequence");
    }
    if (seen) return step.Unsupported("type", "is a second TemplateProcessing; supported: one");
    seen = true;
    SPRY_RETURN_IF_ERROR(ParseTemplate(step, source));
  }
  return {};
}

}  // namespace

Status ParseTokenizerSteps(const JsonObject& root, VocabSource& source) {
  SPRY_RETURN_IF_ERROR(ParseNormalizer(root, source));
  SPRY_RETURN_IF_ERROR(ParsePreTokenizer(root, source));
  SPRY_RETURN_IF_ERROR(ParsePostProcessor(root, source));
  return ParseDecoder(root, source);
}

}  // namespace spry
