#include "text/chat_template.h"

#include <fmt/format.h>

#include <memory>

#include "text/jinja/characters.h"
#include "text/jinja/compare.h"

namespace spry {
namespace {

using jinja::Dict;
using jinja::SequenceKind;
using jinja::Value;

// Names under which a message may carry its reasoning. Templates read the first two.
constexpr std::string_view kReasoning[] = {"reasoning_content", "thinking", "reasoning"};
// Put behind the final message to find where it ends in the text. The space shows whether the
// template has trimmed the message.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

Value Of(Dict dict) { return Value::Of(std::make_shared<const Dict>(std::move(dict))); }
Value Text(std::string_view text) { return Value::String(std::string(text)); }

Status CheckDicts(const Value& list, std::string_view what) {
  if (list.is_none()) return {};
  if (!list.is_list()) {
    return InvalidArgument(
        fmt::format("{} must be a list, found a value of type {}", what, list.TypeName()));
  }
  const auto& items = list.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].dict() != nullptr) continue;
    return InvalidArgument(fmt::format("{}[{}] must be an object, found a value of type {}", what,
                                       i, items[i].TypeName()));
  }
  return {};
}

// A field that is null counts as absent: many templates would print None. The reasoning is there
// under both names that templates use.
Dict NormalizedMessage(const Dict& message) {
  Dict normalized;
  const Value* reasoning = nullptr;
  for (const std::string_view name : kReasoning) {
    const Value* found = message.Find(name);
    if (reasoning == nullptr && found != nullptr && !found->is_none()) reasoning = found;
  }
  if (reasoning != nullptr) normalized.Set("thinking", *reasoning);
  for (const auto& [key, value] : message.entries()) {
    if (!value.is_none()) normalized.Set(key, value);
  }
  if (reasoning != nullptr) normalized.Set("reasoning_content", *reasoning);
  return normalized;
}

// The text that the final message ends with, and the message with the tag behind it.
struct Tagged {
  std::string text;
  Value content;
};

Result<Tagged> TagContent(const Value& content) {
  if (content.text() != nullptr) {
    const std::string& text = content.text()->bytes;
    return Tagged{text, Text(text + std::string(kContinueTag))};
  }
  if (!content.is_list()) {
    return InvalidArgument(
        fmt::format("continue_final_message: the content of the final message "
                    "must be text or parts, found a value of type {}",
                    content.TypeName()));
  }
  std::vector<Value> parts = content.sequence()->items;
  for (size_t i = parts.size(); i-- > 0;) {
    const Value* text = parts[i].dict() == nullptr ? nullptr : parts[i].dict()->Find("text");
    if (text == nullptr || text->text() == nullptr) continue;
    Dict part = *parts[i].dict();
    const std::string whole = text->text()->bytes;
    part.Set("text", Text(whole + std::string(kContinueTag)));
    parts[i] = Of(std::move(part));
    return Tagged{whole, Value::Of(SequenceKind::kList, std::move(parts))};
  }
  return InvalidArgument("continue_final_message: the final message has no text to go on from");
}

// The text up to where the final message ends.
Result<std::string> CutAtTag(std::string text, std::string_view final_text) {
  const std::string_view tag = kContinueTag.substr(0, kContinueTag.size() - 1);
  const size_t at = jinja::RightFindText(text, tag);
  const std::string_view wanted = jinja::Strip(final_text, jinja::Sides::kBoth);
  if (at == std::string::npos || jinja::FindText(text, wanted) == std::string_view::npos) {
    return InvalidArgument(
        "continue_final_message: the chat template does not write the final "
        "message as it is, so there is no place to go on from");
  }
  const bool trimmed = std::string_view(text).substr(at, kContinueTag.size()) != kContinueTag;
  text.resize(at);
  return trimmed ? std::string(jinja::Strip(text, jinja::Sides::kRight)) : text;
}

// Special tokens are added tokens, which vocabularies spell as they are.
std::string PieceText(const VocabSource& vocab, TokenId id) {
  for (const AddedToken& token : vocab.added_tokens) {
    if (token.id == id) return token.content;
  }
  const auto index = static_cast<size_t>(id.value());
  return index < vocab.pieces.size() ? vocab.pieces[index] : "";
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

std::optional<ChatTemplateSource> ChatTemplateOf(const VocabSource& vocab) {
  if (vocab.chat_template.empty()) return {};
  ChatTemplateSource source;
  source.text = vocab.chat_template;
  source.tool_use = vocab.tool_use_template;
  source.special_tokens = vocab.special_texts;
  const auto add = [&](std::string_view name, std::optional<TokenId> id) {
    for (const auto& [known, text] : source.special_tokens) {
      if (known == name) return;
    }
    if (id) source.special_tokens.emplace_back(name, PieceText(vocab, *id));
  };
  add("bos_token", vocab.bos);
  add("eos_token", vocab.eos);
  add("unk_token", vocab.unknown);
  return source;
}

Result<ChatTemplate> ChatTemplate::Create(const ChatTemplateSource& source) {
  SPRY_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::Parse(source.text));
  ChatTemplate chat(Form{source.text, std::move(parsed)});
  if (!source.tool_use.empty()) {
    SPRY_ASSIGN_OR_RETURN(jinja::Template tool_use, jinja::Template::Parse(source.tool_use));
    chat.tool_use_ = Form{source.tool_use, std::move(tool_use)};
  }
  for (const auto& [name, text] : source.special_tokens) chat.special_tokens_.Set(name, Text(text));
  chat.takes_content_parts_ = chat.ReadsParts();
  return chat;
}

// Tried out on a dialogue: a template that only knows strings refuses parts, leaves them out, or
// prints them as a list.
bool ChatTemplate::ReadsParts() const {
  constexpr std::string_view kProbe = "what stands in the part";
  Dict part;
  part.Set("type", Text("text"));
  part.Set("text", Text(kProbe));
  Dict message;
  message.Set("role", Text("user"));
  message.Set("content", Value::Of(SequenceKind::kList, {Of(std::move(part))}));
  ChatInput input;
  input.messages = Value::Of(SequenceKind::kList, {Of(std::move(message))});
  input.add_generation_prompt = true;
  const Result<std::string> text = Render(input);
  if (!text.ok()) return false;
  const bool as_list = text->find("'text': '") != std::string::npos ||
                       text->find("\"text\": \"") != std::string::npos;
  return text->find(kProbe) != std::string::npos && !as_list;
}

Result<std::string> ChatTemplate::Render(const ChatInput& input) const {
  SPRY_RETURN_IF_ERROR(CheckDicts(input.messages, "messages"));
  SPRY_RETURN_IF_ERROR(CheckDicts(input.tools, "tools"));
  SPRY_RETURN_IF_ERROR(CheckDicts(input.documents, "documents"));
  if (!IsTrue(input.messages)) {
    return InvalidArgument("messages is empty; expected at least one message");
  }
  if (input.continue_final_message && input.add_generation_prompt) {
    return InvalidArgument(
        "continue_final_message and add_generation_prompt are both set; "
        "expected at most one of them");
  }
  std::vector<Value> messages;
  for (const Value& message : input.messages.sequence()->items) {
    messages.push_back(Of(NormalizedMessage(*message.dict())));
  }
  const Form& form = tool_use_ && !input.tools.is_none() ? *tool_use_ : text_;
  Tagged tagged;
  if (input.continue_final_message) {
    Dict last = *messages.back().dict();
    const Value* content = last.Find("content");
    if (content == nullptr || form.source.find("content") == std::string::npos) {
      return InvalidArgument(
          "continue_final_message: the final message has no content, or the "
          "chat template does not use it");
    }
    SPRY_ASSIGN_OR_RETURN(tagged, TagContent(*content));
    last.Set("content", tagged.content);
    messages.back() = Of(std::move(last));
  }
  Dict variables = special_tokens_;
  for (const auto& [name, value] : input.variables.entries()) variables.Set(name, value);
  variables.Set("messages", Value::Of(SequenceKind::kList, std::move(messages)));
  variables.Set("tools", input.tools);
  variables.Set("documents", input.documents);
  variables.Set("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  SPRY_ASSIGN_OR_RETURN(std::string text,
                        form.parsed.Render(variables, input.now ? *input.now : LocalTime()));
  if (!input.continue_final_message) return text;
  return CutAtTag(std::move(text), tagged.text);
}

Value UserMessage(std::string_view text) {
  Dict message;
  message.Set("role", Text("user"));
  message.Set("content", Text(text));
  return Value::Of(SequenceKind::kList, {Of(std::move(message))});
}

Result<Value> JoinTextParts(const Value& messages) {
  SPRY_RETURN_IF_ERROR(CheckDicts(messages, "messages"));
  if (!messages.is_list()) return messages;
  std::vector<Value> joined = messages.sequence()->items;
  for (Value& message : joined) {
    const Value* content = message.dict()->Find("content");
    if (content == nullptr || !content->is_list()) continue;
    std::string text;
    bool first = true;
    for (const Value& part : content->sequence()->items) {
      const Dict* fields = part.dict();
      const Value* type = fields == nullptr ? nullptr : fields->Find("type");
      const Value* part_text = fields == nullptr ? nullptr : fields->Find("text");
      const bool is_text =
          type == nullptr || (type->text() != nullptr && type->text()->bytes == "text");
      if (!is_text || part_text == nullptr || part_text->text() == nullptr) {
        return InvalidArgument(
            "a message has a part that is not text, which this model's chat "
            "template does not take");
      }
      if (!first) text += '\n';
      first = false;
      text += part_text->text()->bytes;
    }
    Dict changed = *message.dict();
    changed.Set("content", Value::String(std::move(text)));
    message = Of(std::move(changed));
  }
  return Value::Of(SequenceKind::kList, std::move(joined));
}

}  // namespace spry
