// The values of templates: Python's, as far as templates can see them. All but objects (namespaces,
// loops) are immutable once made, so values may share parts; a cycle can only go through a
// namespace. Cheap to copy. Not for use by two threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace spry::jinja {

class Value;
class Dict;
class Object;
class Iterator;

struct Text {
  std::string bytes;   // UTF-8
  int64_t length = 0;  // in characters
  bool safe = false;   // the outcome of |safe or |escape, which |escape and + treat differently
  bool ascii() const { return static_cast<size_t>(length) == bytes.size(); }
};

enum class SequenceKind { kList, kTuple, kKeys, kValues, kItems };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;
  int64_t weight = 1;
};

struct Range {
  int64_t start = 0;
  int64_t stop = 0;  // only shown; `size` counts
  int64_t step = 1;
  int64_t size = 0;

  // Wraps around beyond the ends, which no caller shows.
  int64_t At(int64_t index) const {
    return static_cast<int64_t>(static_cast<uint64_t>(start) +
                                static_cast<uint64_t>(step) * static_cast<uint64_t>(index));
  }
};

class Value {
 public:
  Value() = default;  // undefined
  static Value Undefined(std::string why);
  static Value None() { return Value(Data(NoneType())); }
  static Value Bool(bool value) { return Value(Data(value)); }
  static Value Int(int64_t value) { return Value(Data(value)); }
  static Value Float(double value) { return Value(Data(value)); }
  static Value String(std::string bytes, bool safe = false);
  static Value Of(Range range);
  static Value Of(SequenceKind kind, std::vector<Value> items);
  static Value Of(std::shared_ptr<const Dict> dict);
  static Value Of(std::shared_ptr<Iterator> iterator);
  static Value Of(std::shared_ptr<Object> object);

  bool is_undefined() const { return std::holds_alternative<UndefinedType>(data_); }
  bool is_none() const { return std::holds_alternative<NoneType>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  // Python's bool is an int.
  bool is_int() const { return is_bool() || std::holds_alternative<int64_t>(data_); }
  bool is_number() const { return is_int() || is_float(); }
  bool is_text() const { return text() != nullptr; }
  bool is_list() const { return is_sequence(SequenceKind::kList); }
  bool is_tuple() const { return is_sequence(SequenceKind::kTuple); }

  // Why it is undefined.
  std::string_view why() const;
  // These ask for the right kind.
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const;
  double as_double() const;  // of any number
  // These are null for other kinds.
  const Text* text() const { return Pointer<std::shared_ptr<const Text>>(); }
  const Range* range() const { return Pointer<std::shared_ptr<const Range>>(); }
  const Sequence* sequence() const { return Pointer<std::shared_ptr<const Sequence>>(); }
  const Dict* dict() const { return Pointer<std::shared_ptr<const Dict>>(); }
  Iterator* iterator() const { return Pointer<std::shared_ptr<Iterator>>(); }
  Object* object() const { return Pointer<std::shared_ptr<Object>>(); }

  // As Python names the type: "str", "dict".
  std::string TypeName() const;
  // Lists and objects inside each other, this one included; 0 for what holds nothing.
  int depth() const;
  // How much there is to go through to the last leaf, where shared parts count each time: the cost
  // of a comparison, in steps.
  int64_t weight() const;
  // The same thing, not just an equal one.
  bool IsSame(const Value& other) const;

 private:
  struct UndefinedType {
    std::shared_ptr<const std::string> why;
  };
  struct NoneType {};
  using Data =
      std::variant<UndefinedType, NoneType, bool, int64_t, double, std::shared_ptr<const Text>,
                   std::shared_ptr<const Range>, std::shared_ptr<const Sequence>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Iterator>, std::shared_ptr<Object>>;

  explicit Value(Data data) : data_(std::move(data)) {}
  bool is_sequence(SequenceKind kind) const {
    return sequence() != nullptr && sequence()->kind == kind;
  }
  template <typename Shared>
  typename Shared::element_type* Pointer() const {
    const Shared* shared = std::get_if<Shared>(&data_);
    return shared == nullptr ? nullptr : shared->get();
  }

  Data data_;
};

// Keeps the order of insertion; keys are any hashable values.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // Replaces the value of an equal key. The key must be hashable.
  void Set(Value key, Value value);
  void Set(std::string_view key, Value value);
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }
  int64_t weight() const { return weight_; }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct KeyLess {
    bool operator()(const Value& a, const Value& b) const;
  };
  size_t IndexOf(const Value& key) const;
  void Append(Value key, Value value);

  std::vector<Entry> entries_;
  // Used once there are many. Ordered rather than hashed, so that no choice of keys makes it slow.
  std::map<Value, size_t, KeyLess> index_;
  int depth_ = 1;
  int64_t weight_ = 1;
};

// What Python calls a generator: may be gone through once, and has no length.
class Iterator {
 public:
  explicit Iterator(std::vector<Value> items);
  int depth() const { return depth_; }
  bool Next(Value& item) {
    if (next_ == items_.size()) return false;
    item = std::move(items_[next_++]);
    return true;
  }

 private:
  std::vector<Value> items_;
  size_t next_ = 0;
  int depth_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Runtime;

// Everything that has behaviour: functions, macros, methods, namespaces, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual bool callable() const { return false; }
  virtual int depth() const { return 1; }
  // Nothing when it cannot be gone through.
  virtual std::optional<std::vector<Value>> Items() const;
  virtual Result<Value> Call(Runtime& runtime, Arguments arguments);
  // Nothing when there is no such attribute.
  virtual Result<std::optional<Value>> Attribute(Runtime& runtime, std::string_view name);
};

class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  Result<std::optional<Value>> Attribute(Runtime& runtime, std::string_view name) override;
  Dict& attributes() { return attributes_; }

 private:
  Dict attributes_;
};

}  // namespace spry::jinja
