#include <fmt/format.h>

#include <cctype>
#include <vector>

#include "text/split_patterns.h"
#include "text/tokenizer_json.h"
#include "text/unicode_tables.h"

namespace spry {
namespace {

constexpr int kMaxNesting = 8;  // of Sequence in Sequence

Status UnsupportedType(const JsonObject& step, std::string_view type, std::string_view supported) {
  return step.Unsupported("type", fmt::format("is \"{}\"; supported: {}", type, supported));
}

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

// The steps of the member `name` of the file; none when it is absent or null.
Result<std::vector<JsonObject>> StepsOf(const JsonObject& root, std::string_view name,
                                        std::string_view sequence_key) {
  std::vector<JsonObject> steps;
  if (!root.Find(name)) return steps;
  SPRY_ASSIGN_OR_RETURN(const JsonObject step, root.Object(name));
  SPRY_RETURN_IF_ERROR(Flatten(step, sequence_key, 0, steps));
  return steps;
}

Status ParseNormalizer(const JsonObject& root, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const auto steps, StepsOf(root, "normalizer", "normalizers"));
  for (const JsonObject& step : steps) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
    if (type != "NFC") return UnsupportedType(step, type, "NFC, Sequence");
    source.nfc = true;
  }
  return {};
}

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
  SPRY_ASSIGN_OR_RETURN(const JsonObject pattern, step.Object("pattern"));
  if (pattern.Find("String")) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view text, pattern.String("String"));
    split.pattern = Literally(text);
  } else {
    SPRY_ASSIGN_OR_RETURN(split.pattern, pattern.String("Regex"));
  }
  SPRY_ASSIGN_OR_RETURN(const std::string_view behavior, step.String("behavior"));
  SPRY_ASSIGN_OR_RETURN(const bool invert, step.Bool("invert", false));
  split.matches_only = behavior == "Removed" && invert;
  if (behavior != "Isolated" && !split.matches_only) {
    return step.Unsupported("behavior",
                            fmt::format("is \"{}\" with invert {}; supported: \"Isolated\", and "
                                        "\"Removed\" with invert true",
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

Status ParsePreTokenizer(const JsonObject& root, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const auto steps, StepsOf(root, "pre_tokenizer", "pretokenizers"));
  bool byte_level = false;
  for (const JsonObject& step : steps) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
    if (type == "ByteLevel") {
      if (byte_level) return step.Unsupported("type", "is a second ByteLevel; supported: one");
      SPRY_RETURN_IF_ERROR(ParseByteLevel(step, source));
      byte_level = true;
      continue;
    }
    if (type != "Split" && type != "Digits" && type != "Punctuation") {
      return UnsupportedType(step, type, "ByteLevel, Split, Digits, Punctuation, Sequence");
    }
    SPRY_ASSIGN_OR_RETURN(VocabSource::Split split, type == "Split"    ? ParseSplit(step)
                                                    : type == "Digits" ? ParseDigits(step)
                                                                       : ParsePunctuation(step));
    split.byte_level = byte_level;
    source.splits.push_back(std::move(split));
  }
  if (!byte_level) {
    return root.Unsupported("pre_tokenizer", "has no ByteLevel; supported: byte-level BPE");
  }
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

Status CheckDecoder(const JsonObject& root) {
  SPRY_ASSIGN_OR_RETURN(const auto steps, StepsOf(root, "decoder", "decoders"));
  if (steps.empty()) return root.Unsupported("decoder", "is missing; supported: ByteLevel");
  for (const JsonObject& step : steps) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
    if (type != "ByteLevel") return UnsupportedType(step, type, "ByteLevel");
  }
  return {};
}

}  // namespace

Status ParseTokenizerSteps(const JsonObject& root, VocabSource& source) {
  SPRY_RETURN_IF_ERROR(ParseNormalizer(root, source));
  SPRY_RETURN_IF_ERROR(ParsePreTokenizer(root, source));
  SPRY_RETURN_IF_ERROR(ParsePostProcessor(root, source));
  return CheckDecoder(root);
}

}  // namespace spry
