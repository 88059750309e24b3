// The messages of a chat so far, in the words of OpenAI's chat requests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace spry {

class Dialogue {
 public:
  // Instructions that stand before all messages; empty: none. Clear keeps them.
  void SetSystem(std::string text) { system_ = std::move(text); }
  void Clear() { messages_.clear(); }

  void AddUser(std::string text) { messages_.push_back({"user", std::move(text)}); }
  void AddAssistant(std::string text) { messages_.push_back({"assistant", std::move(text)}); }
  void DropLast() { messages_.pop_back(); }
  size_t num_messages() const { return messages_.size(); }  // instructions aside

  // What a chat template reads.
  jinja::Value Messages() const;
  // A JSON array of {"role", "content"}, a message a line.
  std::string ToJson() const;

 private:
  struct Message {
    std::string_view role;
    std::string content;
  };
  std::vector<Message> All() const;

  std::string system_;
  std::vector<Message> messages_;
};

}  // namespace spry
