// The functions that every template has: jinja2's, and those of transformers' chat templates.
#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/compare.h"
#include "text/jinja/format.h"
#include "text/jinja/limits.h"
#include "text/utf8.h"

namespace spry::jinja {
namespace {

class Function final : public Object {
 public:
  using Body = Result<Value> (*)(Runtime& runtime, const Arguments& arguments);
  explicit Function(Body body) : body_(body) {}

  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, Arguments arguments) override {
    return body_(runtime, arguments);
  }

 private:
  Body body_;
};

Result<Value> MakeRange(Runtime&, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("range", arguments, {"start", "stop", "step"}, 1));
  SPRY_ASSIGN_OR_RETURN(int64_t start, bound.Int(0));
  int64_t stop = start;
  if (bound.Get(1) == nullptr) {
    start = 0;
  } else {
    SPRY_ASSIGN_OR_RETURN(stop, bound.Int(1));
  }
  SPRY_ASSIGN_OR_RETURN(const int64_t step, bound.Int(2, 1));
  if (step == 0) return InvalidArgument("range: the step is 0");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  if (empty) return Value::Of(Range{.start = start, .stop = stop, .step = step, .size = 0});
  // Of the two the difference fits in 64 bits without a sign.
  const uint64_t span = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                 : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t size = (span - 1) / stride + 1;
  if (size > static_cast<uint64_t>(kMaxRangeItems)) {
    return InvalidArgument(
        fmt::format("range: {} items are over the limit of {}", size, kMaxRangeItems));
  }
  return Value::Of(
      Range{.start = start, .stop = stop, .step = step, .size = static_cast<int64_t>(size)});
}

// dict(pairs or dict, name=value ...), also the start of a namespace.
Result<Dict> DictOf(Runtime& runtime, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    return InvalidArgument("expected at most one value that is not named");
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.dict() != nullptr) {
      dict = *source.dict();
    } else {
      SPRY_ASSIGN_OR_RETURN(const std::vector<Value> pairs, runtime.ItemsOf(source));
      for (const Value& pair : pairs) {
        SPRY_ASSIGN_OR_RETURN(const std::vector<Value> two, runtime.ItemsOf(pair));
        if (two.size() != 2) {
          return InvalidArgument("expected a dict, or pairs of a key and a value");
        }
        SPRY_RETURN_IF_ERROR(runtime.CheckKey(two[0]));
        dict.Set(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.Set(name, value);
  SPRY_RETURN_IF_ERROR(runtime.Charge(static_cast<int64_t>(dict.entries().size())));
  return dict;
}

Result<Value> MakeDict(Runtime& runtime, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(Dict dict, DictOf(runtime, arguments));
  return runtime.MakeDict(std::move(dict));
}

Result<Value> MakeNamespace(Runtime& runtime, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(Dict dict, DictOf(runtime, arguments));
  for (const auto& entry : dict.entries()) {
    if (entry.first.text() != nullptr && entry.first.text()->bytes.starts_with('_')) {
      return InvalidArgument("namespace: a name must not start with an underscore");
    }
  }
  auto space = runtime.MakeNamespace();
  space->attributes() = std::move(dict);
  return Value::Of(std::shared_ptr<Object>(std::move(space)));
}

// joiner(sep)(): nothing the first time, `sep` from then on.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  int depth() const override { return separator_.depth() + 1; }
  Result<Value> Call(Runtime&, Arguments) override {
    if (used_) return separator_;
    used_ = true;
    return Value::String("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Result<Value> MakeJoiner(Runtime& runtime, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("joiner", arguments, {"sep"}, 0));
  auto joiner =
      std::make_shared<Joiner>(bound.Get(0) == nullptr ? Value::String(", ") : *bound.Get(0));
  SPRY_RETURN_IF_ERROR(runtime.CheckDepth(joiner->depth()));
  return Value::Of(std::shared_ptr<Object>(std::move(joiner)));
}

Result<Value> RaiseException(Runtime& runtime, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("raise_exception", arguments, {"message"}, 1));
  SPRY_ASSIGN_OR_RETURN(const std::string message, runtime.ToText(*bound.Get(0)));
  return InvalidArgument(
      fmt::format("the template refuses this: {}", message.substr(0, kMaxMessageBytes)));
}

Result<Value> StrftimeNow(Runtime& runtime, const Arguments& arguments) {
  SPRY_ASSIGN_OR_RETURN(const auto bound,
                        BoundArguments::Bind("strftime_now", arguments, {"format"}, 1));
  SPRY_ASSIGN_OR_RETURN(const Text* format, bound.TextAt(0));
  if (format->bytes.empty()) return Value::String("");
  // strftime takes widths ("%1000000000d"), which Python's own rules leave to the C library.
  if (format->bytes.size() > kMaxMessageBytes) {
    return InvalidArgument(fmt::format("strftime_now: a format of {} bytes is over the limit of {}",
                                       format->bytes.size(), kMaxMessageBytes));
  }
  std::string text(static_cast<size_t>(kMaxFormatWidth), '\0');
  text.resize(std::strftime(text.data(), text.size(), format->bytes.c_str(), &runtime.now()));
  std::string valid;
  AppendLossy(text, valid);
  return runtime.MakeText(std::move(valid));
}

Dict MakeFunctions() {
  Dict functions;
  const std::pair<std::string_view, Function::Body> bodies[] = {
      {"dict", MakeDict},           {"joiner", MakeJoiner},
      {"namespace", MakeNamespace}, {"raise_exception", RaiseException},
      {"range", MakeRange},         {"strftime_now", StrftimeNow},
  };
  for (const auto& [name, body] : bodies) {
    functions.Set(name, Value::Of(std::shared_ptr<Object>(std::make_shared<Function>(body))));
  }
  return functions;
}

}  // namespace

const Dict& GlobalFunctions() {
  static const Dict functions = MakeFunctions();
  return functions;
}

}  // namespace spry::jinja
