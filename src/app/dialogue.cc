#include "app/dialogue.h"

#include <boost/json.hpp>
#include <memory>
#include <utility>

namespace spry {

std::vector<Dialogue::Message> Dialogue::All() const {
  std::vector<Message> all;
  if (!system_.empty()) all.push_back({"system", system_});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

jinja::Value Dialogue::Messages() const {
  std::vector<jinja::Value> list;
  for (const Message& message : All()) {
    jinja::Dict dict;
    dict.Set("role", jinja::Value::String(std::string(message.role)));
    dict.Set("content", jinja::Value::String(message.content));
    list.push_back(jinja::Value::Of(std::make_shared<const jinja::Dict>(std::move(dict))));
  }
  return jinja::Value::Of(jinja::SequenceKind::kList, std::move(list));
}

std::string Dialogue::ToJson() const {
  std::string text = "[";
  for (const Message& message : All()) {
    text += text.size() == 1 ? "\n  " : ",\n  ";
    text += boost::json::serialize(
        boost::json::object{{"role", message.role}, {"content", message.content}});
  }
  return text + "\n]\n";
}

}  // namespace spry
