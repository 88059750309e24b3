#include "checkpoint/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "checkpoint/pickle_opcodes.h"
#include "checkpoint/printable.h"

namespace spry {
namespace {

constexpr size_t kMaxOperations = 1 << 20;  // some 45 for each tensor

constexpr StorageType kStorageTypes[] = {
    {"FloatStorage", 4, DType::kF32},
    {"HalfStorage", 2, DType::kF16},
    {"BFloat16Storage", 2, DType::kBF16},
    {"DoubleStorage", 8, {}},
    {"LongStorage", 8, {}},
    {"IntStorage", 4, {}},
    {"ShortStorage", 2, {}},
    {"CharStorage", 1, {}},
    {"ByteStorage", 1, {}},
    {"BoolStorage", 1, {}},
};

enum class Function : uint8_t {
  kOrderedDict,
  kRebuildTensor,
  kRebuildParameter,
  kRebuildParameterWithState,
};

struct KnownFunction {
  std::string_view module;
  std::string_view name;
  Function function;
};

constexpr KnownFunction kFunctions[] = {
    {"collections", "OrderedDict", Function::kOrderedDict},
    {"torch._utils", "_rebuild_tensor_v2", Function::kRebuildTensor},
    {"torch._utils", "_rebuild_parameter", Function::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", Function::kRebuildParameterWithState},
};

enum class Kind : uint8_t {
  kNone,
  kFlag,
  kInteger,  // a
  kFloat,
  kText,         // a bytes at b
  kFunction,     // a: Function
  kStorageType,  // a: index into kStorageTypes
  kTuple,        // a items at b of items_
  kList,
  kDict,
  kStorage,  // a: index into storages_
  kTensor,   // a: index into tensors_
};

struct Value {
  Kind kind = Kind::kNone;
  int64_t a = 0;
  int64_t b = 0;
};

std::string_view NameOf(Kind kind) {
  constexpr std::string_view kNames[] = {"None",   "a flag",   "a number",       "a number",
                                         "text",   "a global", "a storage type", "a tuple",
                                         "a list", "a dict",   "a storage",      "a tensor"};
  return kNames[static_cast<int>(kind)];
}

using ValueId = uint32_t;

class PickleMachine {
 public:
  explicit PickleMachine(const PickleText& pickle) : pickle_(pickle), text_(pickle.text) {}

  Result<std::vector<PickledTensor>> Run() {
    for (size_t count = 0;; ++count) {
      start_ = at_;
      if (count == kMaxOperations) {
        return Error(fmt::format("more than {} operations", kMaxOperations));
      }
      uint8_t code = 0;
      SPRY_RETURN_IF_ERROR(Read("an opcode", code));
      if (code == static_cast<uint8_t>(Opcode::kStop)) return Finish();
      SPRY_RETURN_IF_ERROR(Step(code));
    }
  }

 private:
  Status Error(std::string_view problem) const {
    return InvalidArgument(
        fmt::format("{}: byte {}: pickle: {}", pickle_.file, pickle_.offset + start_, problem));
  }

  // ---- text ----

  template <typename T>
  Status Read(std::string_view field, T& value) {
    if (text_.size() - at_ < sizeof(T)) {
      return Error(fmt::format("the text ends inside {}", field));
    }
    std::memcpy(&value, text_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return {};
  }

  // Up to a line feed, which is left out.
  Status ReadLine(std::string_view field, std::string_view& line) {
    const size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) return Error(fmt::format("the text ends inside {}", field));
    line = text_.substr(at_, end - at_);
    at_ = end + 1;
    return {};
  }

  std::string_view TextOf(const Value& value) const { return text_.substr(value.b, value.a); }

  // ---- stack ----

  void Push(ValueId id) { stack_.push_back(id); }
  Status Push(const Value& value) {
    values_.push_back(value);
    Push(static_cast<ValueId>(values_.size() - 1));
    return {};
  }

  // What lies above the last mark.
  size_t Depth() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Status Need(size_t count) const {
    return Depth() >= count
               ? Status()
               : Error(fmt::format("{} values are needed, {} are on the stack", count, Depth()));
  }
  ValueId Pop() {
    const ValueId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  const Value& Top() const { return values_[stack_.back()]; }

  // Removes the last mark; where its values begin.
  Status PopMark(size_t& begin) {
    if (marks_.empty()) return Error("there is no MARK");
    begin = marks_.back();
    marks_.pop_back();
    return {};
  }

  Status ExpectTop(Kind kind, std::string_view what) const {
    SPRY_RETURN_IF_ERROR(Need(1));
    if (Top().kind == kind) return {};
    return Error(fmt::format("{} is {}, expected {}", what, NameOf(Top().kind), NameOf(kind)));
  }

  // ---- operations ----

  Status Step(uint8_t code) {
    switch (static_cast<Opcode>(code)) {
      case Opcode::kProto: return CheckProtocol();
      case Opcode::kMark: marks_.push_back(stack_.size()); return {};
      case Opcode::kNone: return Push({.kind = Kind::kNone});
      case Opcode::kNewTrue:
      case Opcode::kNewFalse: return Push({.kind = Kind::kFlag});
      case Opcode::kBinInt: return PushInteger<int32_t>();
      case Opcode::kBinInt1: return PushInteger<uint8_t>();
      case Opcode::kBinInt2: return PushInteger<uint16_t>();
      case Opcode::kLong1: return PushLong();
      case Opcode::kBinFloat: return PushFloat();
      case Opcode::kBinUnicode: return PushText();
      case Opcode::kEmptyTuple: return PushTuple(stack_.size());
      case Opcode::kTuple1: return PushLast(1);
      case Opcode::kTuple2: return PushLast(2);
      case Opcode::kTuple3: return PushLast(3);
      case Opcode::kTuple: {
        size_t begin = 0;
        SPRY_RETURN_IF_ERROR(PopMark(begin));
        return PushTuple(begin);
      }
      case Opcode::kEmptyList: return Push({.kind = Kind::kList});
      case Opcode::kAppend: return Append(/*count=*/1);
      case Opcode::kAppends: return AppendAll();
      case Opcode::kEmptyDict: return Push({.kind = Kind::kDict});
      case Opcode::kSetItem: SPRY_RETURN_IF_ERROR(Need(3)); return SetItems(stack_.size() - 2);
      case Opcode::kSetItems: {
        size_t begin = 0;
        SPRY_RETURN_IF_ERROR(PopMark(begin));
        return SetItems(begin);
      }
      case Opcode::kBinPut: return Put<uint8_t>();
      case Opcode::kLongBinPut: return Put<uint32_t>();
      case Opcode::kBinGet: return Get<uint8_t>();
      case Opcode::kLongBinGet: return Get<uint32_t>();
      case Opcode::kGlobal: return PushGlobal();
      case Opcode::kReduce: return Reduce();
      case Opcode::kBuild: return Build();
      case Opcode::kBinPersId: return PushStorage();
      default:
        return Error(
            fmt::format("opcode {} is not among those of a dictionary of tensors; spry "
                        "runs no code from files",
                        OpcodeName(code)));
    }
  }

  Status CheckProtocol() {
    uint8_t version = 0;
    SPRY_RETURN_IF_ERROR(Read("PROTO", version));
    return version == 2 || version == 3
               ? Status()
               : Error(fmt::format("protocol {}, supported: 2 and 3", version));
  }

  template <typename T>
  Status PushInteger() {
    T number = 0;
    SPRY_RETURN_IF_ERROR(Read("an integer", number));
    return Push({.kind = Kind::kInteger, .a = number});
  }

  // Two's complement, as long as it needs to be.
  Status PushLong() {
    uint8_t bytes = 0;
    SPRY_RETURN_IF_ERROR(Read("LONG1", bytes));
    if (bytes > sizeof(int64_t)) {
      return Error(fmt::format("LONG1 of {} bytes, supported: at most {}", bytes, sizeof(int64_t)));
    }
    uint64_t number = 0;
    for (int i = 0; i < bytes; ++i) {
      uint8_t part = 0;
      SPRY_RETURN_IF_ERROR(Read("LONG1", part));
      number |= uint64_t{part} << (8 * i);
      const bool negative = i + 1 == bytes && part >= 0x80 && bytes < sizeof(int64_t);
      if (negative) number |= ~uint64_t{0} << (8 * bytes);
    }
    return Push({.kind = Kind::kInteger, .a = static_cast<int64_t>(number)});
  }

  Status PushFloat() {
    uint64_t bits = 0;
    SPRY_RETURN_IF_ERROR(Read("BINFLOAT", bits));
    return Push({.kind = Kind::kFloat});
  }

  Status PushText() {
    uint32_t bytes = 0;
    SPRY_RETURN_IF_ERROR(Read("BINUNICODE", bytes));
    if (bytes > text_.size() - at_) {
      return Error(
          fmt::format("BINUNICODE claims {} bytes, but {} are left", bytes, text_.size() - at_));
    }
    const Value value = {.kind = Kind::kText, .a = bytes, .b = static_cast<int64_t>(at_)};
    at_ += bytes;
    return Push(value);
  }

  // Of what lies above `begin`.
  Status PushTuple(size_t begin) {
    const Value tuple = {.kind = Kind::kTuple,
                         .a = static_cast<int64_t>(stack_.size() - begin),
                         .b = static_cast<int64_t>(items_.size())};
    items_.insert(items_.end(), stack_.begin() + static_cast<int64_t>(begin), stack_.end());
    stack_.resize(begin);
    return Push(tuple);
  }

  Status PushLast(size_t count) {
    SPRY_RETURN_IF_ERROR(Need(count));
    return PushTuple(stack_.size() - count);
  }

  // What lists hold is never looked at.
  Status Append(size_t count) {
    SPRY_RETURN_IF_ERROR(Need(count + 1));
    stack_.resize(stack_.size() - count);
    return ExpectTop(Kind::kList, "what is appended to");
  }

  Status AppendAll() {
    size_t begin = 0;
    SPRY_RETURN_IF_ERROR(PopMark(begin));
    return Append(stack_.size() - begin);
  }

  // Keys and values in turn above `begin`, and below them a dict.
  Status SetItems(size_t begin) {
    const std::span<const ValueId> pairs = std::span(stack_).subspan(begin);
    if (pairs.size() % 2 != 0) return Error("a key without a value");
    SPRY_RETURN_IF_ERROR(Need(pairs.size() + 1));
    const ValueId dict = stack_[begin - 1];
    for (size_t i = 0; i < pairs.size(); i += 2) {
      entries_.push_back({.dict = dict, .key = pairs[i], .value = pairs[i + 1]});
    }
    stack_.resize(begin);
    return ExpectTop(Kind::kDict, "what items are set in");
  }

  // Picklers number what they remember from 0 on.
  template <typename T>
  Status Put() {
    T index = 0;
    SPRY_RETURN_IF_ERROR(Read("BINPUT", index));
    SPRY_RETURN_IF_ERROR(Need(1));
    if (index > memo_.size()) {
      return Error(fmt::format("memo {} follows {}", index, memo_.size()));
    }
    if (index == memo_.size()) memo_.push_back(stack_.back());
    memo_[index] = stack_.back();
    return {};
  }

  template <typename T>
  Status Get() {
    T index = 0;
    SPRY_RETURN_IF_ERROR(Read("BINGET", index));
    if (index >= memo_.size()) return Error(fmt::format("memo {} of {}", index, memo_.size()));
    Push(memo_[index]);
    return {};
  }

  Status PushGlobal() {
    std::string_view module, name;
    SPRY_RETURN_IF_ERROR(ReadLine("GLOBAL", module));
    SPRY_RETURN_IF_ERROR(ReadLine("GLOBAL", name));
    for (const KnownFunction& known : kFunctions) {
      if (known.module != module || known.name != name) continue;
      return Push({.kind = Kind::kFunction, .a = static_cast<int64_t>(known.function)});
    }
    for (size_t i = 0; module == "torch" && i < std::size(kStorageTypes); ++i) {
      if (kStorageTypes[i].name != name) continue;
      return Push({.kind = Kind::kStorageType, .a = static_cast<int64_t>(i)});
    }
    return Error(
        fmt::format("global {} is not among those of a dictionary of tensors; spry runs "
                    "no code from files",
                    Printable(std::string(module) + "." + std::string(name))));
  }

  // ---- what torch pickles ----

  std::span<const ValueId> ItemsOf(const Value& tuple) const {
    return std::span(items_).subspan(tuple.b, tuple.a);
  }
  const Value& Item(const Value& tuple, int i) const { return values_[ItemsOf(tuple)[i]]; }

  // Whether a tuple's items, as far as both go, are of these kinds.
  bool Holds(const Value& tuple, std::initializer_list<Kind> kinds) const {
    const std::span<const ValueId> items = ItemsOf(tuple);
    return std::equal(items.begin(), items.begin() + std::min(items.size(), kinds.size()),
                      kinds.begin(),
                      [this](ValueId item, Kind kind) { return values_[item].kind == kind; });
  }

  Status Reduce() {
    SPRY_RETURN_IF_ERROR(Need(2));
    const Value arguments = values_[Pop()];
    const Value callee = values_[Pop()];
    if (callee.kind != Kind::kFunction || arguments.kind != Kind::kTuple) {
      return Error(fmt::format("REDUCE of {} with {}, expected a global with a tuple",
                               NameOf(callee.kind), NameOf(arguments.kind)));
    }
    switch (static_cast<Function>(callee.a)) {
      case Function::kOrderedDict:
        if (arguments.a != 0) return Error("OrderedDict with arguments, supported: without");
        return Push({.kind = Kind::kDict});
      case Function::kRebuildTensor: return PushTensor(arguments);
      case Function::kRebuildParameter: return PushParameter(arguments, /*state=*/0);
      case Function::kRebuildParameterWithState: return PushParameter(arguments, /*state=*/1);
    }
    return Error("REDUCE of an unknown global");
  }

  // (tensor, requires_grad, hooks[, attributes]): the tensor.
  Status PushParameter(const Value& arguments, int state) {
    if (arguments.a != 3 + state ||
        !Holds(arguments, {Kind::kTensor, Kind::kFlag, Kind::kDict, Kind::kDict})) {
      return Error(
          "_rebuild_parameter needs a tensor, a flag and a dict, and one of attributes "
          "where it is with_state");
    }
    Push(ItemsOf(arguments)[0]);
    return {};
  }

  // (storage, offset, sizes, strides, requires_grad, hooks[, metadata])
  Status PushTensor(const Value& arguments) {
    if ((arguments.a != 6 && arguments.a != 7) ||
        !Holds(arguments, {Kind::kStorage, Kind::kInteger, Kind::kTuple, Kind::kTuple, Kind::kFlag,
                           Kind::kDict})) {
      return Error(
          "_rebuild_tensor_v2 needs a storage, an offset, sizes, strides, a flag and a dict");
    }
    PickledTensor tensor = {.storage = storages_[Item(arguments, 0).a],
                            .offset = Item(arguments, 1).a};
    int64_t sizes[Shape::kMaxRank] = {};
    const int64_t rank = Item(arguments, 2).a;
    SPRY_RETURN_IF_ERROR(ReadNumbers(Item(arguments, 2), "sizes", sizes));
    SPRY_RETURN_IF_ERROR(ReadNumbers(Item(arguments, 3), "strides", tensor.strides));
    if (Item(arguments, 3).a != rank) {
      return Error(fmt::format("{} sizes, but {} strides", rank, Item(arguments, 3).a));
    }
    tensor.shape = Shape(std::span<const int64_t>(sizes, static_cast<size_t>(rank)));
    tensors_.push_back(tensor);
    return Push({.kind = Kind::kTensor, .a = static_cast<int64_t>(tensors_.size() - 1)});
  }

  Status ReadNumbers(const Value& tuple, std::string_view field, std::span<int64_t> out) const {
    if (tuple.a > static_cast<int64_t>(out.size())) {
      return Error(
          fmt::format("{} of {} dimensions, supported: at most {}", field, tuple.a, out.size()));
    }
    for (int i = 0; i < tuple.a; ++i) {
      const Value& item = Item(tuple, i);
      if (item.kind != Kind::kInteger || item.a < 0) {
        return Error(fmt::format("an entry of {} is no size", field));
      }
      out[i] = item.a;
    }
    return {};
  }

  // A module's state_dict() has attributes, which say nothing about tensors.
  Status Build() {
    SPRY_RETURN_IF_ERROR(Need(2));
    SPRY_RETURN_IF_ERROR(ExpectTop(Kind::kDict, "the state of BUILD"));
    Pop();
    return ExpectTop(Kind::kDict, "what BUILD changes");
  }

  // ("storage", type, key, where it was, elements)
  Status PushStorage() {
    SPRY_RETURN_IF_ERROR(ExpectTop(Kind::kTuple, "a persistent id"));
    const Value id = values_[Pop()];
    if (id.a != 5 ||
        !Holds(id, {Kind::kText, Kind::kStorageType, Kind::kText, Kind::kText, Kind::kInteger}) ||
        TextOf(Item(id, 0)) != "storage" || Item(id, 4).a < 0) {
      return Error("a persistent id that is no storage with type, key, place and size");
    }
    storages_.push_back({.type = &kStorageTypes[Item(id, 1).a],
                         .key = TextOf(Item(id, 2)),
                         .elements = Item(id, 4).a});
    return Push({.kind = Kind::kStorage, .a = static_cast<int64_t>(storages_.size() - 1)});
  }

  Result<std::vector<PickledTensor>> Finish() {
    if (stack_.size() != 1 || !marks_.empty() || Top().kind != Kind::kDict) {
      return Error("STOP, but what is left is not one dictionary");
    }
    if (at_ != text_.size()) {
      return Error(fmt::format("{} bytes are left over after STOP", text_.size() - at_));
    }
    std::vector<PickledTensor> tensors;
    for (const Entry& entry : entries_) {
      if (entry.dict != stack_.back()) continue;
      const Value& key = values_[entry.key];
      const Value& value = values_[entry.value];
      const std::string_view name = key.kind == Kind::kText ? TextOf(key) : "";
      if (key.kind != Kind::kText || value.kind != Kind::kTensor) {
        return Error(fmt::format("entry {} is {}, expected names with tensors", Printable(name),
                                 NameOf(value.kind)));
      }
      tensors.push_back(tensors_[value.a]);
      tensors.back().name = name;
    }
    return tensors;
  }

  struct Entry {
    ValueId dict = 0, key = 0, value = 0;
  };

  const PickleText& pickle_;
  std::string_view text_;
  size_t at_ = 0;     // the next byte
  size_t start_ = 0;  // of the opcode at work
  std::vector<Value> values_;
  std::vector<ValueId> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::vector<ValueId> memo_;
  std::vector<ValueId> items_;  // of all tuples
  std::vector<Entry> entries_;  // of all dicts
  std::vector<PickledStorage> storages_;
  std::vector<PickledTensor> tensors_;
};

}  // namespace

Result<std::vector<PickledTensor>> ReadTensorPickle(const PickleText& pickle) {
  return PickleMachine(pickle).Run();
}

}  // namespace spry
