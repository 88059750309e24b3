#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace spry {
namespace {

constexpr int kMaxDecomposition = 8;  // characters; the longest canonical one has 4

int CombiningClass(utf8proc_int32_t code) {
  return IsInertInNfc(code) ? 0 : utf8proc_get_property(code)->combining_class;
}

// utf8proc's own reordering is quadratic in a run of marks, hence this one.
void ReorderMarks(std::vector<utf8proc_int32_t>& codes) {
  const auto by_class = [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); };
  for (auto it = codes.begin(); it != codes.end();) {
    if (CombiningClass(*it) == 0) {
      ++it;
      continue;
    }
    auto end = it;
    while (end != codes.end() && CombiningClass(*end) != 0) ++end;
    std::stable_sort(it, end, by_class);
    it = end;
  }
}

// Composes `codes`, which holds no inert character but the first.
void ComposeInto(utf8proc_int32_t* codes, size_t count, std::string& text) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(codes, static_cast<utf8proc_ssize_t>(count), options);
  CHECK(composed >= 0);
  for (utf8proc_ssize_t i = 0; i < composed; ++i) AppendUtf8(codes[i], text);
}

}  // namespace

std::string NormalizeNfc(std::string_view text) {
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), ascii)) return std::string(text);
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  while (!text.empty()) {
    const Utf8Character character = DecodeUtf8(text);
    text.remove_prefix(character.length);
    utf8proc_int32_t parts[kMaxDecomposition];
    utf8proc_ssize_t count = 1;
    parts[0] = static_cast<utf8proc_int32_t>(character.code);
    if (!IsInertInNfc(character.code)) {
      int boundary = 0;
      count = utf8proc_decompose_char(parts[0], parts, kMaxDecomposition, options, &boundary);
      CHECK(count >= 0 && count <= kMaxDecomposition);
    }
    codes.insert(codes.end(), parts, parts + count);
  }
  ReorderMarks(codes);
  std::string normal;
  normal.reserve(codes.size());
  size_t start = 0;
  for (size_t i = 1; i <= codes.size(); ++i) {
    if (i < codes.size() && !IsInertInNfc(codes[i])) continue;
    ComposeInto(codes.data() + start, i - start, normal);
    start = i;
  }
  return normal;
}

}  // namespace spry
