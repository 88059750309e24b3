// The members of tokenizer.json that change text: "normalizer" before tokens, "decoder" behind
// them.
#include <fmt/format.h>

#include <string>

#include "text/base64.h"
#include "text/split_patterns.h"
#include "text/tokenizer_json_parts.h"

namespace spry {
namespace {

using Start = VocabSource::Decoding::Start;

Result<NormalizerStep> ParseReplace(const JsonObject& step) {
  SPRY_ASSIGN_OR_RETURN(const JsonPattern pattern, ParseJsonPattern(step));
  SPRY_ASSIGN_OR_RETURN(const std::string_view content, step.String("content"));
  if (pattern.text.empty()) return step.Wrong("pattern", "is empty; expected some text");
  return NormalizerStep{.kind = pattern.is_regex ? NormalizerStep::Kind::kReplacePattern
                                                 : NormalizerStep::Kind::kReplace,
                        .pattern = std::string(pattern.text),
                        .content = std::string(content)};
}

Result<NormalizerStep> ParsePrecompiled(const JsonObject& step) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view text, step.String("precompiled_charsmap"));
  auto bytes = DecodeBase64(text);
  if (!bytes) return step.Wrong("precompiled_charsmap", "is no base64");
  return NormalizerStep{.kind = NormalizerStep::Kind::kPrecompiled, .content = *std::move(bytes)};
}

Result<NormalizerStep> ParseStripRight(const JsonObject& step) {
  SPRY_ASSIGN_OR_RETURN(const bool left, step.Bool("strip_left", true));
  SPRY_ASSIGN_OR_RETURN(const bool right, step.Bool("strip_right", true));
  if (left || !right) {
    return step.Unsupported("strip_left",
                            fmt::format("is {} with strip_right {}; supported: strip_left false, "
                                        "strip_right true",
                                        left, right));
  }
  return NormalizerStep{.kind = NormalizerStep::Kind::kStripRight};
}

Result<NormalizerStep> ParseNormalizerStep(const JsonObject& step) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
  if (type == "NFC") return NormalizerStep{.kind = NormalizerStep::Kind::kNfc};
  if (type == "Replace") return ParseReplace(step);
  if (type == "Precompiled") return ParsePrecompiled(step);
  if (type == "Strip") return ParseStripRight(step);
  if (type != "Prepend") {
    return UnsupportedType(step, type, "NFC, Prepend, Replace, Precompiled, Strip, Sequence");
  }
  SPRY_ASSIGN_OR_RETURN(const std::string_view content, step.String("prepend"));
  return NormalizerStep{.kind = NormalizerStep::Kind::kPrepend, .content = std::string(content)};
}

// A Replace of the decoder.
Status ParseReplacement(const JsonObject& step, VocabSource::Decoding& decoding) {
  SPRY_ASSIGN_OR_RETURN(NormalizerStep replace, ParseReplace(step));
  if (replace.kind == NormalizerStep::Kind::kReplacePattern) {
    return step.Unsupported("pattern", "is a Regex; supported: String");
  }
  decoding.replacements.emplace_back(std::move(replace.pattern), std::move(replace.content));
  return {};
}

// A Strip of the whole text: one space in front or nothing.
Status ParseStrip(const JsonObject& step, VocabSource::Decoding& decoding) {
  SPRY_ASSIGN_OR_RETURN(const std::string_view content, step.String("content"));
  SPRY_ASSIGN_OR_RETURN(const int32_t front, step.Id("start"));
  SPRY_ASSIGN_OR_RETURN(const int32_t behind, step.Id("stop"));
  if (content != " " || front > 1 || behind > 0) {
    return step.Unsupported("content",
                            fmt::format("is \"{}\" with start {} and stop {}; supported: one space "
                                        "in front",
                                        content, front, behind));
  }
  if (front == 1) decoding.start = Start::kSpaceDropped;
  return {};
}

Status ParseMetaspaceDecoder(const JsonObject& step, VocabSource::Decoding& decoding) {
  SPRY_ASSIGN_OR_RETURN(const auto prefix, ParseMetaspacePrefix(step));
  decoding.replacements.emplace_back(kSpaceMark, " ");
  if (prefix != VocabSource::Split::Marks::kNoPrefix) decoding.start = Start::kFirstMarksDropped;
  return {};
}

// Replace changes single pieces, ByteFallback joins byte pieces, Fuse joins all, and Strip is for
// the joined text: any other order means something else.
Status ParsePlainDecoder(const std::vector<JsonObject>& steps, VocabSource& source) {
  constexpr std::string_view kOrder[] = {"Replace", "ByteFallback", "Metaspace", "Fuse", "Strip"};
  size_t stage = 0;
  bool fused = false;
  VocabSource::Decoding& decoding = source.decoding;
  for (const JsonObject& step : steps) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
    while (stage < std::size(kOrder) && kOrder[stage] != type) ++stage;
    const bool unfused_strip = type == "Strip" && !fused;
    if (stage == std::size(kOrder) || unfused_strip) {
      return UnsupportedType(step, type,
                             "ByteLevel, or in this order Replace, ByteFallback, Metaspace, Fuse, "
                             "Strip (the last behind Fuse)");
    }
    fused |= type == "Fuse";
    if (type == "ByteFallback") decoding.byte_pieces = decoding.runs_break_whole = true;
    if (type == "Replace") SPRY_RETURN_IF_ERROR(ParseReplacement(step, decoding));
    if (type == "Metaspace") SPRY_RETURN_IF_ERROR(ParseMetaspaceDecoder(step, decoding));
    if (type == "Strip") SPRY_RETURN_IF_ERROR(ParseStrip(step, decoding));
  }
  return {};
}

}  // namespace

Status ParseNormalizer(const JsonObject& root, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const auto steps, StepsOf(root, "normalizer", "normalizers"));
  for (const JsonObject& step : steps) {
    SPRY_ASSIGN_OR_RETURN(NormalizerStep parsed, ParseNormalizerStep(step));
    source.normalizer.push_back(std::move(parsed));
  }
  return {};
}

Status ParseDecoder(const JsonObject& root, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const auto steps, StepsOf(root, "decoder", "decoders"));
  if (steps.empty()) {
    return root.Unsupported(
        "decoder",
        "is missing; supported: ByteLevel, Replace, ByteFallback, Metaspace, Fuse, "
        "Strip");
  }
  SPRY_ASSIGN_OR_RETURN(const std::string_view first, steps.front().String("type"));
  const bool byte_level = source.model == VocabSource::Model::kByteLevelBpe;
  if (first == "ByteLevel" && !byte_level) {
    return root.Unsupported("pre_tokenizer",
                            "has no ByteLevel, but the decoder has; supported: in both or neither");
  }
  if (!byte_level) return ParsePlainDecoder(steps, source);
  for (const JsonObject& step : steps) {
    SPRY_ASSIGN_OR_RETURN(const std::string_view type, step.String("type"));
    if (type != "ByteLevel") return UnsupportedType(step, type, "ByteLevel");
  }
  return {};
}

}  // namespace spry
