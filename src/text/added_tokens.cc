#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace spry {
namespace {

size_t LeadingSpace(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Character character = DecodeUtf8(text.substr(length));
    if (!IsWhiteSpace(character.code)) break;
    length += character.length;
  }
  return length;
}

size_t TrailingSpace(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const std::string_view rest = text.substr(0, text.size() - length);
    const char32_t last = LastCharacter(rest);
    if (!IsWhiteSpace(last)) break;
    std::string spelled;
    AppendUtf8(last, spelled);
    length += spelled.size();
  }
  return length;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens)
    : tokens_(tokens), nodes_(1) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (!tokens_[i].content.empty()) Insert(tokens_[i].content, static_cast<int32_t>(i));
  }
}

void AddedTokenMatcher::Insert(std::string_view content, int32_t token) {
  starts_[static_cast<uint8_t>(content[0])] = true;
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      auto& children = nodes_[node].children;
      const std::pair<uint8_t, uint32_t> entry{byte, child};
      children.insert(std::lower_bound(children.begin(), children.end(), entry), entry);
      nodes_.emplace_back();
    }
    node = child;
  }
  if (nodes_[node].token < 0) nodes_[node].token = token;
}

uint32_t AddedTokenMatcher::Child(uint32_t node, uint8_t byte) const {
  const auto& children = nodes_[node].children;
  const auto it =
      std::lower_bound(children.begin(), children.end(), std::pair<uint8_t, uint32_t>{byte, 0});
  return it != children.end() && it->first == byte ? it->second : 0;
}

AddedTokenMatcher::Match AddedTokenMatcher::LongestAt(std::string_view text) const {
  Match longest{-1, 0};
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = Child(node, static_cast<uint8_t>(text[i]));
    if (node == 0) break;
    if (nodes_[node].token >= 0) longest = {nodes_[node].token, i + 1};
  }
  return longest;
}

bool AddedTokenMatcher::IsSingleWord(std::string_view before, std::string_view after) const {
  return (before.empty() || !IsWordCharacter(LastCharacter(before))) &&
         (after.empty() || !IsWordCharacter(DecodeUtf8(after).code));
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::Split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;  // text before this is in `parts`
  size_t at = 0;    // where to look for the next match
  while (at < text.size()) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = LongestAt(text.substr(at));
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[match.token];
    size_t begin = at;
    size_t end = at + match.length;
    at = end;
    const std::string_view before = text.substr(0, begin);
    const std::string_view after = text.substr(end);
    if (token.single_word && !IsSingleWord(before, after)) continue;
    if (token.lstrip) begin = std::max(begin - TrailingSpace(before), done);
    if (token.rstrip) end += LeadingSpace(after);
    if (done < begin) parts.push_back({text.substr(done, begin - done), std::nullopt});
    parts.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
  return parts;
}

}  // namespace spry
