// One rendering: what it has used of its limits, and the operations that every part of the
// evaluator needs and that must be counted. Used by one thread; dies with the rendering.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace spry::jinja {

class Runtime {
 public:
  // `now`: what strftime_now shows, local time.
  explicit Runtime(const std::tm& now) : now_(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Status Charge(int64_t steps) {
    steps_ += steps;
    return steps_ <= kMaxSteps ? Status() : OutOfSteps();
  }
  // For going through so many bytes of text.
  Status ChargeText(size_t bytes);
  // The same where each character is looked at.
  Status ChargeCharacters(size_t bytes);
  // Before a text of so many bytes, or a list of so many items, is made.
  Status CheckText(size_t bytes);
  Status CheckItems(size_t items);
  // Of a value that holds others (Value::depth).
  Status CheckDepth(int depth);

  // Whether it can be a key of a dict.
  Status CheckKey(const Value& key);

  // Comparisons, counted.
  Result<bool> Equal(const Value& a, const Value& b);
  Result<bool> Less(const Value& a, const Value& b);
  Result<bool> LessOrEqual(const Value& a, const Value& b);

  // Makes values within the limits.
  Result<Value> MakeText(std::string bytes, bool safe = false);
  Result<Value> MakeSequence(SequenceKind kind, std::vector<Value> items);
  Result<Value> MakeList(std::vector<Value> items);
  Result<Value> MakeDict(Dict dict);
  Result<Value> MakeIterator(std::vector<Value> items);
  std::shared_ptr<Namespace> MakeNamespace();

  // What a `for` goes through: items, characters, keys. Uses up an iterator.
  Result<std::vector<Value>> ItemsOf(const Value& value);
  // str(value).
  Result<std::string> ToText(const Value& value);
  // `value.name` and `value[key]`: undefined where there is nothing.
  Result<Value> GetAttribute(const Value& value, std::string_view name);
  Result<Value> GetItem(const Value& value, const Value& key);
  Result<Value> Call(const Value& callee, Arguments arguments);

  const std::tm& now() const { return now_; }

  // The line of the template that is being evaluated, for errors.
  void set_line(int line) { line_ = line; }
  int line() const { return line_; }

 private:
  Status OutOfSteps() const;
  Status ChargeComparison(const Value& a, const Value& b);

  const std::tm now_;
  int64_t steps_ = 0;
  int line_ = 0;
  // Namespaces may refer to each other in circles; they are emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace spry::jinja
