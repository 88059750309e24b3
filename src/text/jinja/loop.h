// The `loop` of a for statement: where it stands, and what lies before and behind.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace spry::jinja {

class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  struct Options {
    std::vector<Value> items;
    // Whether the loop takes an item; may be empty. Asked only once an item's turn comes, or when
    // something looks ahead.
    std::function<Result<bool>(const Value& item)> condition;
    // The body once more for other items; empty unless the loop is recursive.
    std::function<Result<Value>(const Value& items)> again;
    int depth = 0;
  };
  explicit Loop(Options options) : options_(std::move(options)) {}

  // Goes on to the next item; nothing at the end.
  Result<std::optional<Value>> Next();
  // Lets go of everything: the loop may be kept, but its items must not be.
  void Finish();

  std::string_view type_name() const override { return "LoopContext"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, Arguments arguments) override;
  Result<std::optional<Value>> Attribute(Runtime& runtime, std::string_view name) override;

 private:
  // Fetches one more item that the condition takes; false at the end.
  Result<bool> Fetch();
  Result<int64_t> Length();
  Result<Value> Ahead();
  Result<Value> Changed(Runtime& runtime, Arguments arguments);

  Options options_;
  size_t next_ = 0;  // of options_.items
  std::deque<Value> ahead_;
  int64_t index_ = -1;
  Value previous_;
  Value current_;
  std::optional<Value> last_changed_;
  bool finished_ = false;
};

}  // namespace spry::jinja
