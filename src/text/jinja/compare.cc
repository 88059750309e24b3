#include "text/jinja/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/characters.h"
#include "text/jinja/runtime.h"

namespace spry::jinja {
namespace {

// Wide enough for every int64_t and every double.
long double Wide(const Value& number) {
  return number.is_float() ? static_cast<long double>(number.as_double())
                           : static_cast<long double>(number.as_int());
}

bool IsSetLike(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kKeys || sequence.kind == SequenceKind::kItems;
}

bool AreEqualSequences(const Sequence& a, const Sequence& b) {
  const bool plain = a.kind == SequenceKind::kList || a.kind == SequenceKind::kTuple;
  if (&a == &b) return true;
  if (a.kind != b.kind && !(IsSetLike(a) && IsSetLike(b))) return false;
  if ((!plain && !IsSetLike(a)) || a.items.size() != b.items.size()) return false;
  if (plain) return std::equal(a.items.begin(), a.items.end(), b.items.begin(), AreEqual);
  return std::ranges::all_of(a.items, [&](const Value& item) {
    return std::ranges::any_of(b.items, [&](const Value& x) { return AreEqual(item, x); });
  });
}

bool AreEqualDicts(const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  return std::ranges::all_of(a.entries(), [&](const Dict::Entry& entry) {
    const Value* found = b.Find(entry.first);
    return found != nullptr && AreEqual(entry.second, *found);
  });
}

bool AreEqualRanges(const Range& a, const Range& b) {
  return a.size == b.size &&
         (a.size == 0 || (a.start == b.start && (a.size == 1 || a.step == b.step)));
}

Status NotOrdered(const Value& a, const Value& b) {
  return InvalidArgument(fmt::format("a value of type {} has no order with one of type {}",
                                     a.TypeName(), b.TypeName()));
}

}  // namespace

bool AreEqual(const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_number() && b.is_number()) {
    if (a.is_int() && b.is_int()) return a.as_int() == b.as_int();
    return Wide(a) == Wide(b);
  }
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes == b.text()->bytes;
  if (a.sequence() != nullptr && b.sequence() != nullptr) {
    return AreEqualSequences(*a.sequence(), *b.sequence());
  }
  if (a.dict() != nullptr && b.dict() != nullptr) return AreEqualDicts(*a.dict(), *b.dict());
  if (a.range() != nullptr && b.range() != nullptr) return AreEqualRanges(*a.range(), *b.range());
  return a.IsSame(b);
}

Result<bool> IsLess(const Value& a, const Value& b) {
  if (a.is_undefined()) return InvalidArgument(std::string(a.why()));
  if (b.is_undefined()) return InvalidArgument(std::string(b.why()));
  if (a.is_int() && b.is_int()) return a.as_int() < b.as_int();
  if (a.is_number() && b.is_number()) return Wide(a) < Wide(b);
  // In UTF-8 the order of bytes is the order of characters.
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes < b.text()->bytes;
  const bool plain = (a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple());
  if (!plain) return NotOrdered(a, b);
  const auto& left = a.sequence()->items;
  const auto& right = b.sequence()->items;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!AreEqual(left[i], right[i])) return IsLess(left[i], right[i]);
  }
  return left.size() < right.size();
}

Result<bool> IsLessOrEqual(const Value& a, const Value& b) {
  SPRY_ASSIGN_OR_RETURN(const bool less, IsLess(a, b));
  return less || AreEqual(a, b);
}

bool IsHashable(const Value& value) {
  if (value.dict() != nullptr) return false;
  if (value.sequence() == nullptr) return true;
  return value.is_tuple() && std::ranges::all_of(value.sequence()->items, IsHashable);
}

bool IsKeyBefore(const Value& a, const Value& b) {
  const auto rank = [](const Value& value) {
    if (value.is_number()) return std::isnan(value.as_double()) ? 1 : 0;
    if (value.text() != nullptr) return 2;
    if (value.sequence() != nullptr) return 3;
    if (value.object() != nullptr) return 4;
    return value.range() != nullptr ? 5 : value.iterator() != nullptr ? 6 : value.is_none() ? 7 : 8;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  switch (rank(a)) {
    case 0: return Wide(a) < Wide(b);
    case 2: return a.text()->bytes < b.text()->bytes;
    case 3:
      return std::ranges::lexicographical_compare(a.sequence()->items, b.sequence()->items,
                                                  IsKeyBefore);
    case 4: return std::less<>()(a.object(), b.object());
    case 5: {
      const Range& x = *a.range();
      const Range& y = *b.range();
      // Ranges are equal when they give the same numbers.
      if (x.size != y.size) return x.size < y.size;
      if (x.size > 0 && x.start != y.start) return x.start < y.start;
      return x.size > 1 && x.step < y.step;
    }
    case 6: return std::less<>()(a.iterator(), b.iterator());
    default: return false;
  }
}

bool IsTrue(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.as_double() != 0;
  if (value.text() != nullptr) return value.text()->length != 0;
  if (value.sequence() != nullptr) return !value.sequence()->items.empty();
  if (value.dict() != nullptr) return !value.dict()->entries().empty();
  if (value.range() != nullptr) return value.range()->size != 0;
  return true;
}

Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      return InvalidArgument(
          fmt::format("'in' with a string to the right needs one to the left, "
                      "found a value of type {}",
                      item.TypeName()));
    }
    SPRY_RETURN_IF_ERROR(runtime.ChargeText(text->bytes.size()));
    return FindText(text->bytes, item.text()->bytes) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    SPRY_RETURN_IF_ERROR(runtime.CheckKey(item));
    return dict->Find(item) != nullptr;
  }
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.ItemsOf(container));
  for (const Value& candidate : items) {
    SPRY_ASSIGN_OR_RETURN(const bool equal, runtime.Equal(candidate, item));
    if (equal) return true;
  }
  return false;
}

}  // namespace spry::jinja
