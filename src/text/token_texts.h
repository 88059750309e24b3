// The text that each token stands for when tokens are decoded.
// Immutable after construction; threads may share one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/vocab_source.h"

namespace spry {

class TokenTexts {
 public:
  // The ids of the added tokens must be in range. Added tokens that are matched in the normalised
  // text read as they are matched, as in the reference.
  TokenTexts(const VocabSource& source, const Normalizer& normalizer);

  // `id` must be in range. Valid UTF-8 unless the vocabulary is byte-level or it is a byte piece.
  std::string_view operator[](int32_t id) const {
    const Entry& entry = entries_[id];
    return std::string_view(arena_).substr(entry.begin, entry.size);
  }
  bool is_special(int32_t id) const { return entries_[id].special; }
  bool is_byte(int32_t id) const { return entries_[id].byte; }
  // The text of a token that starts a text: without the marks that Decoding::start drops.
  std::string_view First(int32_t id) const {
    const Entry& entry = entries_[id];
    return std::string_view(arena_).substr(entry.first_begin, entry.first_size);
  }
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  struct Entry {
    size_t begin = 0;
    size_t first_begin = 0;
    uint32_t size = 0;
    uint32_t first_size = 0;
    bool special = false;
    bool byte = false;
  };

  std::string arena_;
  std::vector<Entry> entries_;
};

}  // namespace spry
