#include "text/sentencepiece_model.h"

#include <fmt/format.h>

#include <bit>
#include <string>

#include "text/protobuf.h"
#include "text/sentencepiece_pieces.h"
#include "text/utf8.h"

namespace spry {
namespace {

using Field = ProtobufReader::Field;
using Wire = ProtobufReader::Field::Wire;

// Sixteen times the largest known vocabulary; keeps a file of empty pieces from claiming memory.
constexpr size_t kMaxPieces = 1 << 22;

// Field numbers.
constexpr uint32_t kPieces = 1, kTrainer = 2, kNormalizer = 3;
constexpr uint32_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint32_t kModelType = 3, kWhitespaceAsSuffix = 24;
constexpr uint32_t kBosPiece = 46, kEosPiece = 47;
constexpr uint32_t kCharsMap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4;
constexpr uint32_t kEscapeWhitespaces = 5;

class ModelReader {
 public:
  explicit ModelReader(std::string_view file) : file_(file) {}

  Result<VocabSource> Read(std::string_view bytes) {
    ProtobufReader reader(file_, bytes, 0);
    while (!reader.done()) {
      SPRY_ASSIGN_OR_RETURN(const Field field, reader.Next());
      if (field.number < kPieces || field.number > kNormalizer) continue;
      SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kBytes, "a message"));
      SPRY_RETURN_IF_ERROR(field.number == kPieces    ? ReadPiece(field)
                           : field.number == kTrainer ? ReadTrainer(field)
                                                      : ReadNormalizer(field));
    }
    if (source_.pieces.empty()) {
      return reader.Wrong(bytes.size(),
                          "the file ends without a piece; expected SentencePiece's "
                          "tokenizer.model");
    }
    SPRY_RETURN_IF_ERROR(SetModel());
    const UserDefinedIn user_defined = source_.model == VocabSource::Model::kUnigram
                                           ? UserDefinedIn::kUnigram
                                           : UserDefinedIn::kBpe;
    const Status types = ApplyPieceTypes(types_, user_defined, source_);
    if (!types.ok()) return Status(types.code(), fmt::format("{}: {}", file_, types.message()));
    SetEnds();
    UseSentencePieceText(source_);
    return std::move(source_);
  }

 private:
  Status ReadPiece(const Field& message) {
    ProtobufReader reader(file_, message.bytes, message.offset);
    if (types_.size() == kMaxPieces) {
      return reader.Wrong(message.offset, fmt::format("more than {} pieces", kMaxPieces));
    }
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
    while (!reader.done()) {
      SPRY_ASSIGN_OR_RETURN(const Field field, reader.Next());
      if (field.number == kPieceText) {
        SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kBytes, "text"));
        text = field.bytes;
        if (!IsValidUtf8(text)) return reader.Wrong(field.offset, "a piece is not UTF-8");
      } else if (field.number == kPieceScore) {
        SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kFixed32, "a score"));
        score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
      } else if (field.number == kPieceType) {
        SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kVarint, "a type"));
        if (field.value < 1 || field.value > 6) {
          return reader.Wrong(field.offset,
                              fmt::format("a piece has type {}; expected 1 to 6", field.value));
        }
        type = static_cast<PieceType>(field.value);
      }
    }
    if (text.empty()) return reader.Wrong(message.offset, "a piece has no text");
    source_.pieces.push_back(std::move(text));
    source_.scores.push_back(score);
    types_.push_back(type);
    return {};
  }

  Status ReadTrainer(const Field& message) {
    ProtobufReader reader(file_, message.bytes, message.offset);
    while (!reader.done()) {
      SPRY_ASSIGN_OR_RETURN(const Field field, reader.Next());
      if (field.number == kModelType) {
        SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kVarint, "the model type"));
        model_type_ = field.value;
      } else if (field.number == kBosPiece || field.number == kEosPiece) {
        SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kBytes, "a piece"));
        (field.number == kBosPiece ? bos_ : eos_) = field.bytes;
      } else if (field.number == kWhitespaceAsSuffix) {
        SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kVarint, "a flag"));
        source_.sentence_piece.whitespace_as_suffix = field.value != 0;
      }
    }
    return {};
  }

  Status ReadNormalizer(const Field& message) {
    ProtobufReader reader(file_, message.bytes, message.offset);
    VocabSource::SentencePiece& rules = source_.sentence_piece;
    while (!reader.done()) {
      SPRY_ASSIGN_OR_RETURN(const Field field, reader.Next());
      if (field.number == kCharsMap) {
        SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kBytes, "a character map"));
        rules.chars_map = field.bytes;
      }
      bool* flag = field.number == kAddDummyPrefix           ? &rules.add_dummy_prefix
                   : field.number == kRemoveExtraWhitespaces ? &rules.remove_extra_whitespaces
                   : field.number == kEscapeWhitespaces      ? &rules.escape_whitespaces
                                                             : nullptr;
      if (flag == nullptr) continue;
      SPRY_RETURN_IF_ERROR(reader.Expect(field, Wire::kVarint, "a flag"));
      *flag = field.value != 0;
    }
    return {};
  }

  Status SetModel() {
    constexpr const char* kNames[] = {"none", "unigram", "BPE", "word", "character"};
    if (model_type_ == 2) {
      source_.model = VocabSource::Model::kScoredBpe;
      return {};
    }
    if (model_type_ == 1) {
      source_.model = VocabSource::Model::kUnigram;
      source_.unigram_of_sentence_piece = true;
      return {};
    }
    return Unimplemented(fmt::format("{}: model_type is {} ({}); supported: 1 (unigram), 2 (BPE)",
                                     file_, model_type_,
                                     kNames[model_type_ < std::size(kNames) ? model_type_ : 0]));
  }

  void SetEnds() {
    for (const AddedToken& token : source_.added_tokens) {
      if (types_[token.id.value()] != PieceType::kControl) continue;
      if (token.content == bos_) source_.bos = token.id;
      if (token.content == eos_) source_.eos = token.id;
    }
  }

  std::string_view file_;
  VocabSource source_;
  std::vector<PieceType> types_;
  uint64_t model_type_ = 1;
  std::string_view bos_ = "<s>";
  std::string_view eos_ = "</s>";
};

}  // namespace

Result<VocabSource> ParseSentencePieceModel(std::string_view file, std::string_view bytes) {
  return ModelReader(file).Read(bytes);
}

}  // namespace spry
