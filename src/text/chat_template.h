// A model's chat template: a dialogue in, the text of the prompt out, equal to what transformers'
// apply_chat_template gives. The text holds its special tokens spelled out, so encode it without
// adding any. Immutable; any number of threads may render with one.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"
#include "text/vocab_source.h"

namespace spry {

struct ChatTemplateSource {
  std::string text;      // Jinja
  std::string tool_use;  // what to use instead when there are tools; empty: `text`
  // The templates see these as variables: "bos_token" -> "<s>". One that is not here is undefined.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

// What a vocabulary's files say of it; nothing when they have no template.
std::optional<ChatTemplateSource> ChatTemplateOf(const VocabSource& vocab);

// Make values with jinja::ReadJson.
struct ChatInput {
  jinja::Value messages;                          // a list of dicts, not empty
  jinja::Value tools = jinja::Value::None();      // a list of dicts with JSON schemas
  jinja::Value documents = jinja::Value::None();  // a list of dicts
  bool add_generation_prompt = false;
  // The answer goes on where the last message ends, which is then left open.
  bool continue_final_message = false;
  // Further variables, over those of special tokens: {"enable_thinking": false}.
  jinja::Dict variables;
  std::optional<std::tm> now;  // for strftime_now; none: the local time
};

class ChatTemplate {
 public:
  // Refuses a template that is broken, naming the line.
  static Result<ChatTemplate> Create(const ChatTemplateSource& source);

  // InvalidArgument when the dialogue does not fit the template: one line, which names the line of
  // the template and says what it objects to.
  Result<std::string> Render(const ChatInput& input) const;

  // Whether the template reads a content that is a list of parts. To one that does not, give
  // JoinTextParts(messages).
  bool takes_content_parts() const { return takes_content_parts_; }

 private:
  struct Form {
    std::string source;
    jinja::Template parsed;
  };
  explicit ChatTemplate(Form text) : text_(std::move(text)) {}
  bool ReadsParts() const;

  Form text_;
  std::optional<Form> tool_use_;
  jinja::Dict special_tokens_;
  bool takes_content_parts_ = false;
};

// The messages of a dialogue that has only this one.
jinja::Value UserMessage(std::string_view text);

// Contents that are lists of text parts become one string each, a line end between parts. A part
// that is not text is an error.
Result<jinja::Value> JoinTextParts(const jinja::Value& messages);

}  // namespace spry
