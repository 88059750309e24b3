#include "text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/text/tiny_vocabulary.h"
#include "text/pre_tokenizers.h"
#include "text/split_patterns.h"

namespace spry {
namespace {

using testing::HasSubstr;

std::vector<TokenId> Encode(const VocabSource& source, std::string_view text) {
  return Build(source)->Encode(text, /*add_special_tokens=*/false);
}

std::vector<TokenId> Join(std::initializer_list<std::vector<TokenId>> parts) {
  std::vector<TokenId> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string ErrorOf(const VocabSource& source) {
  const auto tokenizer = Tokenizer::Create(source);
  return tokenizer.ok() ? "no error" : tokenizer.status().message();
}

TEST(Tokenizer, MergesByRankAndFromTheLeft) {
  VocabSource source = ByteVocabulary();
  const TokenId bc = AddMerge("b", "c", source);
  const TokenId ab = AddMerge("a", "b", source);
  const TokenId aa = AddMerge("a", "a", source);
  const TokenId aab = AddMerge("aa", "b", source);
  EXPECT_EQ(Encode(source, "abc"), Join({BytesOf("a"), {bc}}));
  EXPECT_EQ(Encode(source, "abb"), Join({{ab}, BytesOf("b")}));
  EXPECT_EQ(Encode(source, "aaa"), Join({{aa}, BytesOf("a")}));
  EXPECT_EQ(Encode(source, "aab"), Join({BytesOf("a"), {ab}}));  // ab before aa
  EXPECT_EQ(Encode(source, "aabc"), (std::vector{aa, bc}));
  EXPECT_EQ(Encode(source, ""), std::vector<TokenId>());
  EXPECT_EQ(Build(source)->TokenBytes(aab), "aab");
}

// Long words take the heap, short ones the scan; both must make the same tokens.
TEST(Tokenizer, LongWordsAreMergedAsShortOnesAre) {
  VocabSource source = ByteVocabulary();
  std::mt19937 random(5);
  std::vector<std::string> pool = {"a", "b", "c"};
  for (int i = 0; i < 60; ++i) {
    const std::string left = pool[random() % pool.size()];
    const std::string right = pool[random() % pool.size()];
    if (left.size() + right.size() > 12) continue;
    AddMerge(left, right, source);
    pool.push_back(left + right);
  }
  const auto tokenizer = Build(source);
  CutBy("[abc]+", source);  // a word that is cut off by spaces: the same merges, in short words
  const auto cutting = Build(source);
  for (int round = 0; round < 200; ++round) {
    std::string word;
    for (int i = 0; i < 45; ++i) word.push_back("abc"[random() % 3]);
    const std::vector<TokenId> once = cutting->Encode(word, /*add_special_tokens=*/false);
    // The separators match no merge, so each copy must come out alike inside one long word.
    std::vector<TokenId> expected;
    std::string repeated;
    for (int i = 0; i < 4; ++i) {
      repeated += word + "-";
      expected.insert(expected.end(), once.begin(), once.end());
      expected.emplace_back('-');
    }
    ASSERT_EQ(tokenizer->Encode(repeated, /*add_special_tokens=*/false), expected) << word;
  }
}

TEST(Tokenizer, OneMegabyteWithoutSpacesTakesNoQuadraticTime) {
  VocabSource source = ByteVocabulary();
  AddMerge("x", "x", source);
  AddMerge("xx", "xx", source);
  AddMerge("a", "b", source);
  CutBy(std::string(kGpt2Pattern), source);
  const auto tokenizer = Build(source);
  const auto start = std::chrono::steady_clock::now();
  std::string mixed;
  for (int i = 0; i < 500'000; ++i) mixed += i % 7 == 0 ? "b" : "xa";
  for (const std::string& text : {std::string(1 << 20, 'x'), mixed, std::string(1 << 20, ' ') + "a",
                                  std::string(1 << 20, '\n'), std::string(1 << 20, '1')}) {
    const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/false);
    EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/false), text);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// A pattern that backtracks over the whole text from each place gives up; it must not hang.
TEST(Tokenizer, RunawayPatternEnds) {
  VocabSource source = ByteVocabulary();
  CutBy("(a+)+$", source);
  std::string text(200, 'a');
  text += "!";
  const auto tokenizer = Build(source);
  const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/false);
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/false), text);
}

TEST(Tokenizer, NfcIsLinearInRunsOfMarks) {
  VocabSource source = ByteVocabulary();
  source.normalizer.push_back({.kind = NormalizerStep::Kind::kNfc});
  std::string text = "a";
  for (int i = 0; i < 100'000; ++i) text += "\u0301\u0316";
  EXPECT_EQ(Encode(source, text).size(), text.size() - 1);  // a + U+0301 became one character
}

// B004: flags of added tokens decide what happens to the white space beside them.
TEST(AddedTokens, StripFlags) {
  for (const bool strip : {true, false}) {
    VocabSource source = ByteVocabulary();
    AddedToken start = Special("<|startoftranscript|>");
    AddedToken language = Special("<|en|>");
    start.lstrip = start.rstrip = language.lstrip = language.rstrip = strip;
    const TokenId first = AddToken(start, source);
    const TokenId second = AddToken(language, source);
    const auto ids = Encode(source, "   <|startoftranscript|> <|en|>   ");
    if (strip) {
      EXPECT_EQ(ids, (std::vector{first, second}));
    } else {
      EXPECT_EQ(ids, Join({BytesOf("   "), {first}, BytesOf(" "), {second}, BytesOf("   ")}));
    }
  }
}

TEST(AddedTokens, LongestMatchAndWholeWords) {
  VocabSource source = ByteVocabulary();
  const TokenId shorter = AddToken(Special("<a"), source);
  const TokenId longer = AddToken(Special("<a>"), source);
  AddedToken whole = Special("word");
  whole.single_word = true;
  const TokenId word = AddToken(whole, source);
  EXPECT_EQ(Encode(source, "<a><a<a"), (std::vector{longer, shorter, shorter}));
  EXPECT_EQ(Encode(source, "(word)"), Join({BytesOf("("), {word}, BytesOf(")")}));
  EXPECT_EQ(Encode(source, "words"), BytesOf("words"));
  EXPECT_EQ(Encode(source, "\u00e9word"), BytesOf("\u00e9word"));
}

TEST(AddedTokens, EmptyContentNeverMatches) {
  VocabSource source = ByteVocabulary();
  AddToken(Special(""), source);
  EXPECT_EQ(Encode(source, "ab"), BytesOf("ab"));
}

// B005: Qwen2 keeps punctuation pairs together and takes digits one by one.
TEST(Tokenizer, Qwen2Split) {
  VocabSource source = ByteVocabulary();
  const TokenId arrow = AddMerge("-", ">", source);
  const TokenId colon = AddMerge(")", ":", source);
  const TokenId colon_line = AddMerge("):", "\n", source);
  AddMerge("2", "0", source);
  ASSERT_TRUE(ApplyPreTokenizer("qwen2", source).ok());
  EXPECT_EQ(Encode(source, "->"), std::vector{arrow});
  EXPECT_EQ(Encode(source, "(x):\n"), Join({BytesOf("(x"), {colon_line}}));
  EXPECT_EQ(Encode(source, "2024"), BytesOf("2024"));
  EXPECT_EQ(Encode(source, "):x"), Join({{colon}, BytesOf("x")}));
}

// B007: a backslash and an n are no line end.
TEST(Tokenizer, BackslashNIsTwoCharacters) {
  VocabSource source = ByteVocabulary();
  EXPECT_EQ(Encode(source, "a\\nb"), BytesOf("a\\nb"));
  EXPECT_NE(Encode(source, "a\\nb"), Encode(source, "a\nb"));
}

// B010: text that looks like a byte piece is text.
TEST(Tokenizer, LiteralBytePieceSurvives) {
  VocabSource source = ByteVocabulary();
  CutBy(std::string(kGpt2Pattern), source);
  const auto tokenizer = Build(source);
  const std::string text = "print <0x40> please";
  const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/true);
  EXPECT_EQ(ids, BytesOf(text));
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/true), text);
}

// B011: without a bos there is none, whatever is asked for.
TEST(Tokenizer, NoBosUnlessTheVocabularySaysSo) {
  VocabSource source = ByteVocabulary();
  ASSERT_TRUE(ApplyPreTokenizer("qwen2", source).ok());
  EXPECT_EQ(Build(source)->Encode("Hi", /*add_special_tokens=*/true), BytesOf("Hi"));
  source.bos = AddToken(Special("<s>"), source);
  EXPECT_EQ(Build(source)->Encode("Hi", /*add_special_tokens=*/true), BytesOf("Hi"));
  source.add_bos = true;
  EXPECT_EQ(Build(source)->Encode("Hi", /*add_special_tokens=*/true),
            Join({{*source.bos}, BytesOf("Hi")}));
  EXPECT_EQ(Build(source)->Encode("Hi", /*add_special_tokens=*/false), BytesOf("Hi"));
  source.eos = AddToken(Special("</s>"), source);
  source.add_eos = true;
  EXPECT_EQ(Build(source)->Encode("", /*add_special_tokens=*/true),
            (std::vector{*source.bos, *source.eos}));
}

// B013: decoding gives back what was encoded, spaces before punctuation too.
TEST(Tokenizer, DecodeDoesNotCleanUpSpaces) {
  VocabSource source = ByteVocabulary();
  const auto tokenizer = Build(source);
  for (const std::string text : {"! ! !", "don 't", " a .  b"}) {
    EXPECT_EQ(tokenizer->Decode(BytesOf(text), /*skip_special_tokens=*/true), text);
  }
}

// B014: ids that only the weights have, holes of the vocabulary and nonsense give no text.
TEST(Tokenizer, IdsWithoutTextDecodeToNothing) {
  VocabSource source = ByteVocabulary();
  source.pieces.resize(300);
  const auto tokenizer = Build(source);
  const std::vector<TokenId> ids = {TokenId('a'),     TokenId(299),       TokenId(300),
                                    TokenId(-1),      TokenId(INT32_MAX), TokenId(INT32_MIN),
                                    TokenId(151'936), TokenId('b')};
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/false), "ab");
  EXPECT_EQ(tokenizer->TokenBytes(TokenId(300)), "");
  EXPECT_FALSE(tokenizer->IsSpecial(TokenId(-1)));
  EXPECT_EQ(tokenizer->vocab_size(), 300);
}

// B053: bytes that are no UTF-8 count as U+FFFD, a lone surrogate as well.
TEST(Tokenizer, BrokenUtf8IsReplaced) {
  VocabSource source = ByteVocabulary();
  CutBy(std::string(kGpt2Pattern), source);
  EXPECT_EQ(Encode(source, "\xC3\x28"), BytesOf("\uFFFD("));
  EXPECT_EQ(Encode(source, "\xED\xA0\x80x"), BytesOf("\uFFFD\uFFFD\uFFFDx"));
  EXPECT_EQ(Encode(source, std::string_view("\0\0", 2)), BytesOf(std::string_view("\0\0", 2)));
}

TEST(Tokenizer, MissingBytesAreUnknownOrVanish) {
  VocabSource source = ByteVocabulary();
  source.pieces['z'].clear();
  EXPECT_EQ(Encode(source, "azb"), BytesOf("ab"));
  source.unknown = TokenId('?');
  EXPECT_EQ(Encode(source, "azb"), BytesOf("a?b"));
}

TEST(Tokenizer, IgnoreMergesTakesWholeTokens) {
  VocabSource source = ByteVocabulary();
  source.pieces.push_back("abc");
  EXPECT_EQ(Encode(source, "abc"), BytesOf("abc"));
  source.ignore_merges = true;
  EXPECT_EQ(Encode(source, "abc"), std::vector{TokenId(256)});
}

TEST(Tokenizer, RefusesContradictions) {
  VocabSource source = ByteVocabulary();
  source.merges.emplace_back("a", "qq");
  EXPECT_THAT(ErrorOf(source), HasSubstr("merge 0 (\"a\" \"qq\"): the vocabulary has no \"qq\""));
  source.merges = {{"a", "b"}};
  EXPECT_THAT(ErrorOf(source), HasSubstr("has no \"ab\""));
  source.merges = {{"a", "\u2581b"}};
  EXPECT_THAT(ErrorOf(source), HasSubstr("is not spelled in the byte-level alphabet"));
  source.merges.clear();
  source.eos = TokenId(256);
  EXPECT_THAT(ErrorOf(source), HasSubstr("eos has id 256, but the vocabulary has 256 tokens"));
  source.eos.reset();
  source.add_bos = true;
  EXPECT_THAT(ErrorOf(source), HasSubstr("names no bos"));
  source.add_bos = false;
  source.added_tokens.push_back(Special("<x>"));
  source.added_tokens[0].id = TokenId(-1);
  EXPECT_THAT(ErrorOf(source), HasSubstr("added token \"<x>\" has id -1"));
  source.added_tokens.clear();
  for (const std::string pattern : {"(a", "a)", "[a", "\\", "*", "a\\p{Nonsense}", "(?<x", "a{1}?",
                                    "\\u12", "(a(?i)b)", "[b-a]", "\\K", "[\\W]"}) {
    source.splits.clear();
    CutBy(pattern, source);
    EXPECT_NE(ErrorOf(source), "no error") << pattern;
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  VocabSource source = ByteVocabulary();
  AddMerge("t", "h", source);
  AddMerge("th", "e", source);
  ASSERT_TRUE(ApplyPreTokenizer("qwen2", source).ok());
  const auto tokenizer = Build(source);
  const std::string text = "the other th\u00e9 \u4e2d\u6587 12 the the";
  const auto expected = tokenizer->Encode(text, /*add_special_tokens=*/false);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        wrong += tokenizer->Encode(text, /*add_special_tokens=*/false) != expected;
        wrong += tokenizer->Decode(expected, /*skip_special_tokens=*/true) != text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(PreTokenizers, UnknownNamesAreRefusedWithTheKnown) {
  VocabSource source = ByteVocabulary();
  const Status status = ApplyPreTokenizer("nonsense", source);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.ggml.pre is \"nonsense\"; supported: bloom"));
  EXPECT_THAT(status.message(), HasSubstr("llama-bpe"));
  EXPECT_THAT(status.message(), HasSubstr("smollm"));
}

TEST(PreTokenizers, EveryKnownNameBuilds) {
  VocabSource source = ByteVocabulary();
  std::string names = ApplyPreTokenizer("", source).message();
  names = names.substr(names.find("supported: ") + 11) + ",";
  int count = 0;
  for (size_t end; (end = names.find(',')) != std::string::npos; names.erase(0, end + 2)) {
    ASSERT_TRUE(ApplyPreTokenizer(names.substr(0, end), source).ok());
    const auto tokenizer = Build(source);
    const std::string text = "Ab's 12 \u4e2d\n x";
    EXPECT_EQ(tokenizer->Encode(text, /*add_special_tokens=*/true), BytesOf(text));
    ++count;
  }
  EXPECT_GE(count, 30);
}

}  // namespace
}  // namespace spry
