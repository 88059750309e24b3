// The data of tools/tokenizer_goldens.py, and comparing a tokenizer with it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace spry {

inline std::filesystem::path DataFolder() {
  return std::filesystem::path(SPRY_SOURCE_DIR) / "build" / "test-data" / "tokenizers";
}

// A file of records: a little-endian uint32 count, then so many elements.
class Records {
 public:
  explicit Records(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream stream;
    stream << file.rdbuf();
    data_ = stream.str();
  }

  bool done() const { return at_ >= data_.size(); }

  std::string_view Text() {
    const size_t count = Count();
    at_ += count;
    return std::string_view(data_).substr(at_ - count, count);
  }

  std::vector<TokenId> Ids() {
    std::vector<TokenId> ids(Count());
    for (TokenId& id : ids) {
      int32_t value = 0;
      std::memcpy(&value, data_.data() + at_, sizeof value);
      at_ += sizeof value;
      id = TokenId(value);
    }
    return ids;
  }

 private:
  size_t Count() {
    uint32_t count = 0;
    if (at_ + sizeof count <= data_.size()) std::memcpy(&count, data_.data() + at_, sizeof count);
    at_ += sizeof count;
    return count;
  }

  std::string data_;
  size_t at_ = 0;
};

inline std::string Show(const std::vector<TokenId>& ids, size_t from) {
  std::string shown;
  for (size_t i = from; i < ids.size() && i < from + 8; ++i) {
    shown += fmt::format(" {}", ids[i].value());
  }
  return shown;
}

// Where two id sequences part, and the text from there on.
inline std::string Difference(const Tokenizer& tokenizer, std::string_view text,
                              const std::vector<TokenId>& got, const std::vector<TokenId>& want) {
  size_t same = 0;
  while (same < got.size() && same < want.size() && got[same] == want[same]) ++same;
  size_t bytes = 0;
  for (size_t i = 0; i < same; ++i) bytes += tokenizer.TokenBytes(got[i]).size();
  std::string shown;
  for (const char c : text.substr(std::min(bytes, text.size()), 40)) {
    shown += fmt::format("{:02x} ", static_cast<unsigned char>(c));
  }
  return fmt::format("token {}: got{}, want{}; text there: {}", same, Show(got, same),
                     Show(want, same), shown);
}

// Counts the texts that come out different and shows the first of them.
inline void ExpectSameIds(const Tokenizer& tokenizer, const std::filesystem::path& texts_file,
                          const std::filesystem::path& ids_file) {
  Records texts(texts_file);
  Records ids(ids_file);
  int total = 0;
  int different = 0;
  for (; !texts.done() && !ids.done(); ++total) {
    const std::string_view text = texts.Text();
    const std::vector<TokenId> want = ids.Ids();
    const std::vector<TokenId> got = tokenizer.Encode(text, /*add_special_tokens=*/false);
    if (got == want) continue;
    if (++different <= 5) ADD_FAILURE() << Difference(tokenizer, text, got, want);
  }
  EXPECT_EQ(different, 0) << "of " << total;
  EXPECT_TRUE(texts.done() && total > 0);
}

// Both all at once and as a stream.
inline void ExpectSameTexts(const Tokenizer& tokenizer, const std::filesystem::path& file) {
  Records records(file);
  int total = 0;
  int different = 0;
  for (; !records.done(); ++total) {
    const std::vector<TokenId> ids = records.Ids();
    for (const bool skip : {false, true}) {
      const std::string_view want = records.Text();
      Detokenizer detokenizer(tokenizer, skip);
      std::string joined;
      for (const TokenId id : ids) detokenizer.Append(id, joined);
      detokenizer.Finish(joined);
      const std::string whole = tokenizer.Decode(ids, skip);
      if (whole == want && joined == want) continue;
      if (++different > 5) continue;
      ADD_FAILURE() << "ids" << Show(ids, 0) << "\ngot  " << whole << "\njoin " << joined
                    << "\nwant " << want;
    }
  }
  EXPECT_EQ(different, 0);
  EXPECT_GT(total, 1000);
}

}  // namespace spry
