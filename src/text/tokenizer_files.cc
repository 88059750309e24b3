#include "text/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/file_listed.h"
#include "text/json_object.h"
#include "text/sentencepiece_model.h"
#include "text/split_patterns.h"
#include "text/tokenizer_json.h"

namespace spry {
namespace {

constexpr size_t kMaxVocabularyBytes = 256 << 20;  // the largest known is 35 MB
constexpr size_t kMaxModelBytes = 64 << 20;  // of a tokenizer.model; the largest known is 5 MB
constexpr size_t kMaxConfigBytes = 16 << 20;

using Path = std::filesystem::path;

// The small files beside the vocabulary. Absent ones are empty.
struct Configs {
  std::optional<JsonFile> tokenizer_config;
  std::optional<JsonFile> special_tokens_map;
};

Result<std::optional<JsonFile>> ReadOptional(const Path& path) {
  if (!IsListed(path)) return std::optional<JsonFile>();
  SPRY_ASSIGN_OR_RETURN(JsonFile file, JsonFile::Read(path, kMaxConfigBytes));
  return std::optional<JsonFile>(std::move(file));
}

Result<Configs> ReadConfigs(const Path& folder) {
  Configs configs;
  SPRY_ASSIGN_OR_RETURN(configs.tokenizer_config, ReadOptional(folder / "tokenizer_config.json"));
  SPRY_ASSIGN_OR_RETURN(configs.special_tokens_map,
                        ReadOptional(folder / "special_tokens_map.json"));
  return configs;
}

// A special token as the configs name it: text, or an object with flags. Empty content: not named.
Result<AddedToken> NamedToken(const Configs& configs, std::string_view key) {
  for (const auto* file : {&configs.tokenizer_config, &configs.special_tokens_map}) {
    if (!*file) continue;
    const JsonObject root = (*file)->root();
    const auto element = root.Find(key);
    if (!element) continue;
    AddedToken token{};
    if (element->is_object()) {
      SPRY_ASSIGN_OR_RETURN(const JsonObject object, root.Object(key));
      SPRY_ASSIGN_OR_RETURN(token, ParseAddedToken(object));
    } else {
      SPRY_ASSIGN_OR_RETURN(token.content, root.String(key));
    }
    return token;
  }
  return AddedToken{};
}

std::optional<TokenId> FindPiece(const VocabSource& source, std::string_view content) {
  const auto it = std::find(source.pieces.begin(), source.pieces.end(), content);
  if (content.empty() || it == source.pieces.end()) return {};
  return TokenId(static_cast<int32_t>(it - source.pieces.begin()));
}

void MakeSpecial(AddedToken token, VocabSource& source) {
  auto& added = source.added_tokens;
  const auto same = [&](const AddedToken& other) { return other.id == token.id; };
  const auto it = std::find_if(added.begin(), added.end(), same);
  if (it != added.end()) {
    it->special = true;
    return;
  }
  token.special = true;
  added.push_back(std::move(token));
}

// Makes the token that `key` names special and stores its id. One that the vocabulary lacks is
// left out: a model has no row for it. `fixed`: the post-processor has set `id`, which must agree.
Status SetNamed(const Configs& configs, std::string_view key, bool fixed, VocabSource& source,
                std::optional<TokenId>& id) {
  SPRY_ASSIGN_OR_RETURN(AddedToken token, NamedToken(configs, key));
  const auto found = FindPiece(source, token.content);
  if (!found) return {};
  if (fixed && id != found) {
    return Unimplemented(fmt::format(
        "tokenizer_config.json: {} is \"{}\" (id {}), but the post_processor of tokenizer.json "
        "puts id {} there; supported: the same token in both",
        key, token.content, found->value(), id->value()));
  }
  id = token.id = *found;
  MakeSpecial(std::move(token), source);
  return {};
}

Status SetSpecialTokens(const Configs& configs, bool whole, VocabSource& source) {
  const bool bos_fixed = whole && source.add_bos;
  const bool eos_fixed = whole && source.add_eos;
  SPRY_RETURN_IF_ERROR(SetNamed(configs, "bos_token", bos_fixed, source, source.bos));
  SPRY_RETURN_IF_ERROR(SetNamed(configs, "eos_token", eos_fixed, source, source.eos));
  std::optional<TokenId> other;
  for (const std::string_view key : {"unk_token", "pad_token", "sep_token", "cls_token"}) {
    SPRY_RETURN_IF_ERROR(SetNamed(configs, key, /*fixed=*/false, source, other));
  }
  return {};
}

// A template, or a list of {name, template} with those named "default" and "tool_use".
Status ReadConfigTemplates(const JsonObject& config, VocabSource& source) {
  const auto element = config.Find("chat_template");
  if (!element) return {};
  if (!element->is_array()) {
    SPRY_ASSIGN_OR_RETURN(source.chat_template, config.String("chat_template"));
    return {};
  }
  SPRY_ASSIGN_OR_RETURN(const simdjson::dom::array templates, config.Array("chat_template"));
  size_t index = 0;
  for (const auto item : templates) {
    SPRY_ASSIGN_OR_RETURN(const JsonObject named, config.ObjectAt("chat_template", index++, item));
    SPRY_ASSIGN_OR_RETURN(const std::string_view name, named.String("name"));
    SPRY_ASSIGN_OR_RETURN(const std::string_view text, named.String("template"));
    if (name == "default") source.chat_template = text;
    if (name == "tool_use") source.tool_use_template = text;
  }
  return {};
}

// Files of their own take the place of all that the config has.
Status ReadChatTemplates(const Path& folder, const Configs& configs, VocabSource& source) {
  const Path whole = folder / "chat_template.jinja";
  const Path tool_use = folder / "additional_chat_templates" / "tool_use.jinja";
  if (!IsListed(whole) && !IsListed(tool_use)) {
    if (!configs.tokenizer_config) return {};
    return ReadConfigTemplates(configs.tokenizer_config->root(), source);
  }
  if (IsListed(whole)) {
    SPRY_ASSIGN_OR_RETURN(source.chat_template, ReadTextFile(whole, kMaxConfigBytes));
  }
  if (IsListed(tool_use)) {
    SPRY_ASSIGN_OR_RETURN(source.tool_use_template, ReadTextFile(tool_use, kMaxConfigBytes));
  }
  return {};
}

// Templates may write these as variables.
Status ReadSpecialTexts(const Configs& configs, VocabSource& source) {
  for (const std::string_view key : {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"}) {
    SPRY_ASSIGN_OR_RETURN(AddedToken token, NamedToken(configs, key));
    if (!token.content.empty()) source.special_texts.emplace_back(key, std::move(token.content));
  }
  return {};
}

Status ReadMerges(const Path& path, VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxVocabularyBytes));
  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    if (!AddMerge(line, source)) {
      return InvalidArgument(
          fmt::format("{}: line {} is no merge; expected two words with a "
                      "space between",
                      path.string(), number));
    }
  }
  return {};
}

// added_tokens_decoder of tokenizer_config.json: id -> token.
Status ReadAddedTokens(const JsonObject& config, VocabSource& source) {
  if (!config.Find("added_tokens_decoder")) return {};
  SPRY_ASSIGN_OR_RETURN(const JsonObject tokens, config.Object("added_tokens_decoder"));
  for (const auto field : tokens.raw()) {
    SPRY_ASSIGN_OR_RETURN(const JsonObject object, tokens.Object(field.key));
    SPRY_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(object));
    const std::string_view digits = field.key;
    int32_t id = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (error != std::errc() || end != digits.data() + digits.size() || id < 0) {
      return tokens.Wrong(digits, "is no token id");
    }
    token.id = TokenId(id);
    SPRY_RETURN_IF_ERROR(AddToken(token, tokens.PathOf(digits), source));
  }
  return {};
}

// What the last file says of a token counts.
void KeepLastOfEach(VocabSource& source) {
  std::vector<bool> seen(source.pieces.size());
  std::vector<AddedToken> kept;
  for (auto it = source.added_tokens.rbegin(); it != source.added_tokens.rend(); ++it) {
    if (!seen[it->id.value()]) kept.push_back(*it);
    seen[it->id.value()] = true;
  }
  std::reverse(kept.begin(), kept.end());
  source.added_tokens = std::move(kept);
}

// added_tokens.json of older folders: token -> id. Whether one is special the configs say.
Status ReadAddedTokensFile(const Path& path, VocabSource& source) {
  if (!IsListed(path)) return {};
  SPRY_ASSIGN_OR_RETURN(const JsonFile file, JsonFile::Read(path, kMaxConfigBytes));
  for (const auto field : file.root().raw()) {
    SPRY_ASSIGN_OR_RETURN(const int32_t id, file.root().Id(field.key));
    AddedToken token{};
    token.id = TokenId(id);
    token.content = field.key;
    SPRY_RETURN_IF_ERROR(AddToken(token, file.root().PathOf(field.key), source));
  }
  return {};
}

// SentencePiece's file. What its own tokenizer class adds to it is in the configs; without them
// bos goes in front, as for Llama.
Result<VocabSource> ReadTokenizerModel(const Path& folder, const Configs& configs) {
  const Path path = folder / "tokenizer.model";
  SPRY_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(path, kMaxModelBytes));
  SPRY_ASSIGN_OR_RETURN(VocabSource source, ParseSentencePieceModel(path.string(), bytes));
  source.add_bos = source.bos.has_value();
  if (configs.tokenizer_config) {
    const JsonObject config = configs.tokenizer_config->root();
    SPRY_ASSIGN_OR_RETURN(source.add_bos, config.Bool("add_bos_token", source.add_bos));
    SPRY_ASSIGN_OR_RETURN(source.add_eos, config.Bool("add_eos_token", false));
    SPRY_ASSIGN_OR_RETURN(source.sentence_piece.prefix_after_special, config.Bool("legacy", true));
    SPRY_RETURN_IF_ERROR(ReadAddedTokens(config, source));
  }
  SPRY_RETURN_IF_ERROR(ReadAddedTokensFile(folder / "added_tokens.json", source));
  KeepLastOfEach(source);
  source.scores.resize(source.pieces.size());
  return source;
}

// GPT-2's files, which OPT has too. Whether bos goes in front only the config says.
Result<VocabSource> ReadVocabAndMerges(const Path& folder, const Configs& configs) {
  VocabSource source;
  SPRY_ASSIGN_OR_RETURN(const JsonFile vocab,
                        JsonFile::Read(folder / "vocab.json", kMaxVocabularyBytes));
  SPRY_RETURN_IF_ERROR(ParseVocab(vocab.root(), source));
  SPRY_RETURN_IF_ERROR(ReadMerges(folder / "merges.txt", source));
  VocabSource::Split split;
  split.pattern = kGpt2Pattern;
  source.splits.push_back(split);
  if (configs.tokenizer_config) {
    const JsonObject config = configs.tokenizer_config->root();
    SPRY_ASSIGN_OR_RETURN(source.add_prefix_space, config.Bool("add_prefix_space", false));
    SPRY_ASSIGN_OR_RETURN(source.add_bos, config.Bool("add_bos_token", false));
    SPRY_RETURN_IF_ERROR(ReadAddedTokens(config, source));
  }
  return source;
}

// GPT-2's own folder has no configs; this is what its tokenizer class stands for.
void ApplyGpt2Defaults(VocabSource& source) {
  if (source.bos || source.eos) return;
  const auto found = FindPiece(source, "<|endoftext|>");
  if (!found) return;
  AddedToken token{};
  token.id = *found;
  token.content = "<|endoftext|>";
  source.bos = source.eos = found;
  MakeSpecial(std::move(token), source);
}

}  // namespace

Result<std::optional<VocabSource>> ReadTokenizerFiles(const Path& folder) {
  const bool whole = IsListed(folder / "tokenizer.json");
  const bool model = !whole && IsListed(folder / "tokenizer.model");
  const bool parts = IsListed(folder / "vocab.json") && IsListed(folder / "merges.txt");
  if (!whole && !model && !parts) return std::optional<VocabSource>();
  SPRY_ASSIGN_OR_RETURN(const Configs configs, ReadConfigs(folder));
  VocabSource source;
  if (whole) {
    SPRY_ASSIGN_OR_RETURN(const JsonFile file,
                          JsonFile::Read(folder / "tokenizer.json", kMaxVocabularyBytes));
    SPRY_ASSIGN_OR_RETURN(source, ParseTokenizerJson(file.root()));
  } else if (model) {
    SPRY_ASSIGN_OR_RETURN(source, ReadTokenizerModel(folder, configs));
  } else {
    SPRY_ASSIGN_OR_RETURN(source, ReadVocabAndMerges(folder, configs));
  }
  SPRY_RETURN_IF_ERROR(ReadChatTemplates(folder, configs, source));
  SPRY_RETURN_IF_ERROR(ReadSpecialTexts(configs, source));
  SPRY_RETURN_IF_ERROR(SetSpecialTokens(configs, whole, source));
  if (!whole && !model) ApplyGpt2Defaults(source);
  if (source.add_bos && !source.bos) {
    return InvalidArgument(
        fmt::format("{}: add_bos_token is true, but bos_token is missing or not in the vocabulary",
                    (folder / "tokenizer_config.json").string()));
  }
  if (source.add_eos && !source.eos) {
    return InvalidArgument(
        fmt::format("{}: add_eos_token is true, but eos_token is missing or not in the vocabulary",
                    (folder / "tokenizer_config.json").string()));
  }
  return std::optional<VocabSource>(std::move(source));
}

}  // namespace spry
