#include "text/jinja/loop.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "text/jinja/compare.h"

namespace spry::jinja {
namespace {

// loop.cycle and loop.changed.
class LoopFunction final : public Object {
 public:
  using Body = std::function<Result<Value>(Runtime& runtime, Arguments arguments)>;
  explicit LoopFunction(Body body) : body_(std::move(body)) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, Arguments arguments) override {
    return body_(runtime, std::move(arguments));
  }

 private:
  Body body_;
};

Value MakeFunction(LoopFunction::Body body) {
  return Value::Of(std::shared_ptr<Object>(std::make_shared<LoopFunction>(std::move(body))));
}

}  // namespace

Result<bool> Loop::Fetch() {
  while (next_ < options_.items.size()) {
    Value& item = options_.items[next_++];
    if (options_.condition) {
      SPRY_ASSIGN_OR_RETURN(const bool taken, options_.condition(item));
      if (!taken) continue;
    }
    ahead_.push_back(std::move(item));
    return true;
  }
  return false;
}

Result<std::optional<Value>> Loop::Next() {
  if (ahead_.empty()) {
    SPRY_ASSIGN_OR_RETURN(const bool found, Fetch());
    if (!found) return std::optional<Value>();
  }
  ++index_;
  previous_ = std::move(current_);
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  return std::optional<Value>(current_);
}

void Loop::Finish() {
  options_ = {};
  next_ = 0;
  ahead_.clear();
  previous_ = current_ = Value();
  last_changed_.reset();
  finished_ = true;
}

Result<int64_t> Loop::Length() {
  if (!options_.condition) {
    return index_ + 1 + static_cast<int64_t>(ahead_.size() + options_.items.size() - next_);
  }
  for (bool more = true; more;) {
    SPRY_ASSIGN_OR_RETURN(more, Fetch());
  }
  return index_ + 1 + static_cast<int64_t>(ahead_.size());
}

Result<Value> Loop::Ahead() {
  if (ahead_.empty()) {
    SPRY_ASSIGN_OR_RETURN(const bool found, Fetch());
    if (!found) return Value::Undefined("there is no next item");
  }
  return ahead_.front();
}

Result<Value> Loop::Call(Runtime&, Arguments arguments) {
  if (!options_.again) return InvalidArgument("only a loop that is 'recursive' can be called");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return InvalidArgument("a recursive loop takes one argument");
  }
  return options_.again(arguments.positional[0]);
}

Result<Value> Loop::Changed(Runtime& runtime, Arguments arguments) {
  if (finished_) return InvalidArgument("loop.changed is called after its loop");
  SPRY_ASSIGN_OR_RETURN(
      Value values, runtime.MakeSequence(SequenceKind::kTuple, std::move(arguments.positional)));
  if (last_changed_) {
    SPRY_ASSIGN_OR_RETURN(const bool equal, runtime.Equal(*last_changed_, values));
    if (equal) return Value::Bool(false);
  }
  last_changed_ = std::move(values);
  return Value::Bool(true);
}

Result<std::optional<Value>> Loop::Attribute(Runtime&, std::string_view name) {
  std::optional<Value> found;
  if (name == "index0") found = Value::Int(index_);
  if (name == "index") found = Value::Int(index_ + 1);
  if (name == "first") found = Value::Bool(index_ == 0);
  if (name == "depth0") found = Value::Int(options_.depth);
  if (name == "depth") found = Value::Int(options_.depth + 1);
  if (name == "previtem") {
    found = index_ == 0 ? Value::Undefined("there is no previous item") : previous_;
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    SPRY_ASSIGN_OR_RETURN(const int64_t length, Length());
    found = Value::Int(name == "length" ? length : length - index_ - (name == "revindex0" ? 1 : 0));
  }
  if (name == "last") {
    if (ahead_.empty()) SPRY_RETURN_IF_ERROR(Fetch().status());
    found = Value::Bool(ahead_.empty());
  }
  if (name == "nextitem") {
    SPRY_ASSIGN_OR_RETURN(found, Ahead());
  }
  if (name == "cycle") {
    found = MakeFunction([index = index_](Runtime&, Arguments arguments) -> Result<Value> {
      const auto size = static_cast<int64_t>(arguments.positional.size());
      if (size == 0) return InvalidArgument("loop.cycle needs values");
      return arguments.positional[static_cast<size_t>(index % size)];
    });
  }
  if (name == "changed") {
    found = MakeFunction([loop = shared_from_this()](Runtime& runtime, Arguments arguments) {
      return loop->Changed(runtime, std::move(arguments));
    });
  }
  return found;
}

}  // namespace spry::jinja
