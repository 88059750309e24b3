#include "server/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "server/request_fields.h"

namespace spry {
namespace {

namespace json = boost::json;
using jinja::Dict;
using jinja::SequenceKind;
using jinja::Value;

Value Of(Dict dict) { return Value::Of(std::make_shared<const Dict>(std::move(dict))); }
Value Text(std::string_view text) { return Value::String(std::string(text)); }

// OpenAI's; "function" is the older name of "tool".
constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                       "assistant", "tool",      "function"};
constexpr std::string_view kAssistant = "assistant";

ApiError Wrong(const std::string& where, std::string_view found, std::string_view expected) {
  return BadRequest(fmt::format("{} is {}; it must be {}", where, found, expected), where);
}

// Parts are known by their "type"; a plain string is a text part too.
std::optional<ApiError> ReadPart(const json::value& part, std::string_view role,
                                 const std::string& where, std::vector<Value>& parts) {
  const json::object* fields = part.if_object();
  const json::string* text = part.if_string();
  if (fields != nullptr) {
    const json::value* type = fields->if_contains("type");
    if (type == nullptr || !type->is_string()) {
      return Wrong(where + ".type", type == nullptr ? "missing" : Described(*type), "a string");
    }
    const json::string& kind = type->get_string();
    const bool is_refusal = kind == "refusal" && role == kAssistant;
    if (kind != "text" && kind != "input_text" && kind != "output_text" && !is_refusal) {
      return BadRequest(
          fmt::format("{} is of type {}; this server serves text parts", where, Quoted(kind)),
          where);
    }
    const json::value* content = fields->if_contains(is_refusal ? "refusal" : "text");
    if (content == nullptr || !content->is_string()) {
      return Wrong(where + ".text", content == nullptr ? "missing" : Described(*content),
                   "a string");
    }
    text = content->if_string();
  }
  if (text == nullptr) return Wrong(where, Described(part), "an object with type and text");
  Dict dict;
  dict.Set("type", Text("text"));
  dict.Set("text", Text(*text));
  parts.push_back(Of(std::move(dict)));
  return {};
}

// Only the assistant may say nothing: its message may be calls of tools alone.
std::optional<ApiError> ReadContent(const json::value* content, std::string_view role,
                                    const std::string& where, Value& out) {
  const bool may_be_empty = role == kAssistant;
  const std::string expected =
      fmt::format("a string{} or a list of parts", may_be_empty ? ", null" : "");
  out = Text("");
  if (content == nullptr || content->is_null()) {
    if (may_be_empty) return {};
    return Wrong(where, content == nullptr ? "missing" : "null", expected);
  }
  if (const json::string* text = content->if_string()) {
    out = Text(*text);
    return {};
  }
  const json::array* list = content->if_array();
  if (list == nullptr) return Wrong(where, Described(*content), expected);
  if (list->empty()) {
    if (may_be_empty) return {};
    return BadRequest(where + " is empty; it must have at least one part", where);
  }
  std::vector<Value> parts;
  for (size_t i = 0; i < list->size(); ++i) {
    if (auto wrong = ReadPart((*list)[i], role, fmt::format("{}[{}]", where, i), parts)) {
      return wrong;
    }
  }
  out = Value::Of(SequenceKind::kList, std::move(parts));
  return {};
}

// Templates go through the arguments of a call, which clients send as JSON in a string.
std::optional<ApiError> ReadToolCalls(const json::value& calls, const std::string& where,
                                      Value& out) {
  const json::array* list = calls.if_array();
  if (list == nullptr) return Wrong(where, Described(calls), "a list");
  json::array read;
  for (size_t i = 0; i < list->size(); ++i) {
    json::value call = (*list)[i];
    json::object* fields = call.if_object();
    json::value* function = fields == nullptr ? nullptr : fields->if_contains("function");
    json::value* arguments = function == nullptr || !function->is_object()
                                 ? nullptr
                                 : function->get_object().if_contains("arguments");
    if (arguments != nullptr && arguments->is_string()) {
      json::error_code error;
      const json::string text = arguments->get_string();
      json::value parsed = text.empty() ? json::object() : json::parse(text, error);
      if (error || !parsed.is_object()) {
        return Wrong(fmt::format("{}[{}].function.arguments", where, i), "no JSON object",
                     "the JSON of an object");
      }
      *arguments = std::move(parsed);
    }
    read.push_back(std::move(call));
  }
  out = ToJinja(json::value(std::move(read)));
  return {};
}

std::optional<ApiError> ReadRole(const json::value* role, const std::string& where,
                                 std::string_view& out) {
  const json::string* text = role == nullptr ? nullptr : role->if_string();
  if (text == nullptr || std::ranges::find(kRoles, *text) == std::end(kRoles)) {
    return Wrong(where, role == nullptr ? "missing" : Described(*role),
                 "system, developer, user, assistant, tool or function");
  }
  out = *text;
  return {};
}

std::optional<ApiError> ReadMessage(const json::value& message, const std::string& where,
                                    Value& out) {
  const json::object* fields = message.if_object();
  if (fields == nullptr) return Wrong(where, Described(message), "an object");
  std::string_view role;
  if (auto wrong = ReadRole(fields->if_contains("role"), where + ".role", role)) return wrong;
  Dict dict;
  dict.Set("role", Text(role));
  Value content;
  if (auto wrong = ReadContent(fields->if_contains("content"), role, where + ".content", content)) {
    return wrong;
  }
  dict.Set("content", std::move(content));
  for (const auto& entry : *fields) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (key == "role" || key == "content" || entry.value().is_null()) continue;
    Value value;
    if (key == "tool_calls") {
      if (auto wrong = ReadToolCalls(entry.value(), where + ".tool_calls", value)) return wrong;
    } else {
      value = ToJinja(entry.value());
    }
    dict.Set(key, std::move(value));
  }
  out = Of(std::move(dict));
  return {};
}

}  // namespace

std::optional<ApiError> ReadMessages(const json::array& messages, Value& out) {
  if (messages.empty()) {
    return BadRequest("messages is empty; it must have at least one message", "messages");
  }
  std::vector<Value> list(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    if (auto wrong = ReadMessage(messages[i], fmt::format("messages[{}]", i), list[i])) {
      return wrong;
    }
  }
  out = Value::Of(SequenceKind::kList, std::move(list));
  return {};
}

Value ToJinja(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return Value::None();
    case json::kind::bool_: return Value::Bool(value.get_bool());
    case json::kind::int64: return Value::Int(value.get_int64());
    case json::kind::uint64: return Value::Float(value.to_number<double>());
    case json::kind::double_: return Value::Float(value.get_double());
    case json::kind::string: return Text(value.get_string());
    case json::kind::array: break;
    case json::kind::object: {
      Dict dict;
      for (const auto& entry : value.get_object()) {
        dict.Set(std::string_view(entry.key().data(), entry.key().size()), ToJinja(entry.value()));
      }
      return Of(std::move(dict));
    }
  }
  std::vector<Value> items;
  for (const json::value& item : value.get_array()) items.push_back(ToJinja(item));
  return Value::Of(SequenceKind::kList, std::move(items));
}

}  // namespace spry
