#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <numeric>
#include <string>

#include "base/allocation_counter.h"

namespace spry {
namespace {

std::vector<TokenId> Tokens(std::initializer_list<int> values) {
  std::vector<TokenId> tokens;
  for (int value : values) tokens.push_back(TokenId(value));
  return tokens;
}

std::vector<TokenId> Same(int value, int count) {
  return std::vector<TokenId>(count, TokenId(value));
}

std::vector<TokenId> Counting(int first, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId(first + i));
  return tokens;
}

// What a request does: publishes its full blocks and frees them; looks up how many are cached.
class PrefixUser {
 public:
  explicit PrefixUser(BlockPool& pool) : pool_(pool) {}

  void Write(std::string_view salt, std::span<const TokenId> tokens) {
    std::vector<BlockId> blocks;
    ForEachBlock(salt, tokens, [&](BlockHash hash, std::span<const TokenId> block_tokens) {
      blocks.push_back(*pool_.Allocate());
      pool_.Publish(blocks.back(), hash, block_tokens);
      return true;
    });
    for (size_t i = blocks.size(); i-- > 0;) pool_.Release(blocks[i]);
  }

  int CachedTokens(std::string_view salt, std::span<const TokenId> tokens) {
    int cached = 0;
    ForEachBlock(salt, tokens, [&](BlockHash hash, std::span<const TokenId> block_tokens) {
      if (!pool_.Find(hash, block_tokens)) return false;
      cached += pool_.block_size();
      return true;
    });
    return cached;
  }

 private:
  void ForEachBlock(std::string_view salt, std::span<const TokenId> tokens, auto visit) {
    BlockHash hash = pool_.Root(salt);
    const size_t size = pool_.block_size();
    for (; tokens.size() >= size; tokens = tokens.subspan(size)) {
      hash = pool_.Chain(hash, tokens.first(size));
      if (!visit(hash, tokens.first(size))) return;
    }
  }

  BlockPool& pool_;
};

TEST(BlockPool, HandsOutEveryBlockOnceAndThenNothing) {
  BlockPool pool({.num_blocks = 3, .block_size = 4});
  EXPECT_EQ(pool.Allocate(), BlockId(0));
  EXPECT_EQ(pool.Allocate(), BlockId(1));
  EXPECT_EQ(pool.Allocate(), BlockId(2));
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  EXPECT_EQ(pool.num_free(), 0);
  pool.Release(BlockId(1));
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.Allocate(), BlockId(1));
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, EvictsTheLeastRecentlyFreedFirst) {
  BlockPool pool({.num_blocks = 3, .block_size = 4});
  for (int i = 0; i < 3; ++i) {
    const std::vector<TokenId> tokens = Same(i, 4);
    pool.Publish(*pool.Allocate(), pool.Chain(pool.Root(""), tokens), tokens);
  }
  for (int block : {2, 0, 1}) pool.Release(BlockId(block));
  pool.Retain(BlockId(2));  // used again: now the most recently freed
  pool.Release(BlockId(2));
  EXPECT_EQ(pool.Allocate(), BlockId(0));
  EXPECT_EQ(pool.Allocate(), BlockId(1));
  EXPECT_EQ(pool.Allocate(), BlockId(2));
}

// Fresh blocks cost the system memory and published ones are worth keeping.
TEST(BlockPool, AnUnpublishedBlockIsUsedAgainFirst) {
  BlockPool pool({.num_blocks = 8, .block_size = 4, .prefix_caching = false});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pool.Allocate(), BlockId(i));
  pool.Release(BlockId(1));
  pool.Release(BlockId(2));
  EXPECT_EQ(pool.Allocate(), BlockId(2));
  EXPECT_EQ(pool.Allocate(), BlockId(1));
  EXPECT_EQ(pool.Allocate(), BlockId(3));
}

TEST(BlockPool, ASharedBlockIsFreeWithItsLastReference) {
  BlockPool pool({.num_blocks = 1, .block_size = 4});
  const BlockId block = *pool.Allocate();
  pool.Retain(block);
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.references(block), 1);
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, APublishedBlockIsHitUntilItIsHandedOutAgain) {
  BlockPool pool({.num_blocks = 2, .block_size = 4});
  const std::vector<TokenId> tokens = Tokens({1, 2, 3, 4});
  const BlockHash hash = pool.Chain(pool.Root(""), tokens);
  const BlockId block = *pool.Allocate();
  EXPECT_EQ(pool.Find(hash, tokens), std::nullopt);
  pool.Publish(block, hash, tokens);
  EXPECT_EQ(pool.Find(hash, tokens), block);
  pool.Release(block);
  EXPECT_EQ(pool.Find(hash, tokens), block);
  EXPECT_NE(pool.Allocate(), block);  // free longer
  EXPECT_EQ(pool.Find(hash, tokens), block);
  EXPECT_EQ(pool.Allocate(), block);
  EXPECT_EQ(pool.Find(hash, tokens), std::nullopt);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, TheFirstBlockWithAPrefixStays) {
  BlockPool pool({.num_blocks = 2, .block_size = 4});
  const std::vector<TokenId> tokens = Tokens({1, 2, 3, 4});
  const BlockHash hash = pool.Chain(pool.Root(""), tokens);
  const BlockId first = *pool.Allocate();
  const BlockId second = *pool.Allocate();
  pool.Publish(first, hash, tokens);
  pool.Publish(second, hash, tokens);
  EXPECT_EQ(pool.Find(hash, tokens), first);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, AHashThatCollidesGivesNoHit) {
  BlockPool pool({.num_blocks = 2, .block_size = 4});
  const BlockHash hash{.low = 5, .high = 6};
  pool.Publish(*pool.Allocate(), hash, Tokens({1, 2, 3, 4}));
  EXPECT_EQ(pool.Find(hash, Tokens({1, 2, 3, 5})), std::nullopt);
  pool.Publish(*pool.Allocate(), hash, Tokens({1, 2, 3, 5}));
  EXPECT_EQ(pool.Find(hash, Tokens({1, 2, 3, 4})), BlockId(0));
  EXPECT_EQ(pool.Find(hash, Tokens({1, 2, 3, 5})), std::nullopt);
}

// Hashes chosen so that all entries fall on neighbouring slots, the run wrapping round the end of
// the table: removal must shift back the right ones.
TEST(BlockPool, RemovalKeepsEveryOtherEntryReachable) {
  constexpr int kBlocks = 6;
  const std::vector<TokenId> tokens = Tokens({1});
  for (uint64_t first_home : {0, 13, 14, 15}) {
    for (int removed = 0; removed < kBlocks; ++removed) {
      BlockPool pool({.num_blocks = kBlocks, .block_size = 1});
      std::vector<BlockHash> hashes;
      for (int i = 0; i < kBlocks; ++i) {
        pool.Allocate();
        hashes.push_back({.low = (first_home + i / 2) % 16, .high = static_cast<uint64_t>(i)});
        pool.Publish(BlockId(i), hashes[i], tokens);
      }
      pool.Release(BlockId(removed));
      EXPECT_FALSE(pool.ResetPrefixCache());
      for (int i = 0; i < kBlocks; ++i) {
        const std::optional<BlockId> expected =
            i == removed ? std::nullopt : std::optional(BlockId(i));
        EXPECT_EQ(pool.Find(hashes[i], tokens), expected) << first_home << " " << removed;
      }
      EXPECT_EQ(pool.CheckIntegrity().message(), "");
    }
  }
}

TEST(BlockPool, ResetForgetsFreeBlocksAndTellsWhetherAnyIsLeft) {
  BlockPool pool({.num_blocks = 4, .block_size = 4});
  PrefixUser user(pool);
  user.Write("", Counting(0, 8));
  const std::vector<TokenId> held = Counting(50, 4);
  const BlockHash held_hash = pool.Chain(pool.Root(""), held);
  const BlockId block = *pool.Allocate();
  pool.Publish(block, held_hash, held);

  EXPECT_FALSE(pool.ResetPrefixCache());
  EXPECT_EQ(user.CachedTokens("", Counting(0, 8)), 0);
  EXPECT_EQ(pool.Find(held_hash, held), block);
  pool.Release(block);
  EXPECT_TRUE(pool.ResetPrefixCache());
  EXPECT_EQ(pool.Find(held_hash, held), std::nullopt);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, WithoutPrefixCachingNothingIsFound) {
  BlockPool pool({.num_blocks = 4, .block_size = 4, .prefix_caching = false});
  PrefixUser user(pool);
  user.Write("", Counting(0, 8));
  EXPECT_EQ(user.CachedTokens("", Counting(0, 8)), 0);
  EXPECT_TRUE(pool.ResetPrefixCache());
}

TEST(BlockPool, HashesDependOnKeyParentOrderAndEveryToken) {
  BlockPool pool({.num_blocks = 1, .block_size = 4, .hash_key = 1});
  BlockPool other({.num_blocks = 1, .block_size = 4, .hash_key = 2});
  const std::vector<TokenId> tokens = Tokens({1, 2, 3, 4});
  const BlockHash root = pool.Root("");
  EXPECT_NE(other.Root(""), root);
  EXPECT_NE(other.Chain(root, tokens), pool.Chain(root, tokens));
  EXPECT_NE(pool.Chain({.low = root.low, .high = root.high + 1}, tokens), pool.Chain(root, tokens));
  EXPECT_NE(pool.Chain({.low = root.low + 1, .high = root.high}, tokens), pool.Chain(root, tokens));
  EXPECT_NE(pool.Chain(root, Tokens({2, 1, 3, 4})), pool.Chain(root, tokens));
  EXPECT_NE(pool.Chain(root, Tokens({1, 2, 3, 5})), pool.Chain(root, tokens));
  EXPECT_EQ(pool.Chain(root, Tokens({1, 2, 3, 4})), pool.Chain(root, tokens));
}

TEST(BlockPool, AllocatesNoMemoryAfterConstruction) {
  BlockPool pool({.num_blocks = 64, .block_size = 16});
  const std::vector<TokenId> tokens = Counting(0, 16);
  const uint64_t before = ThreadAllocations();
  BlockHash hash = pool.Root("salt");
  for (int i = 0; i < 1000; ++i) {
    hash = pool.Chain(hash, tokens);
    const BlockId block = *pool.Allocate();
    pool.Publish(block, hash, tokens);
    pool.Release(block);
    ASSERT_EQ(pool.Find(hash, tokens), block);
  }
  pool.ResetPrefixCache();
  EXPECT_EQ(ThreadAllocations(), before);
}

// Ids that agree in their low 8 bits are different ids.
TEST(BlockPoolFaults, B065WholeIdsAreHashed) {
  for (int other : {321, 65 + (1 << 16), 65 + (1 << 24)}) {
    BlockPool pool({.num_blocks = 4, .block_size = 16});
    PrefixUser user(pool);
    user.Write("", Same(65, 16));
    EXPECT_NE(pool.Chain(pool.Root(""), Same(65, 16)), pool.Chain(pool.Root(""), Same(other, 16)));
    EXPECT_EQ(user.CachedTokens("", Same(other, 16)), 0);
    EXPECT_EQ(user.CachedTokens("", Same(65, 16)), 16);
  }
}

TEST(BlockPoolFaults, B067SaltsShareNothing) {
  BlockPool pool({.num_blocks = 16, .block_size = 16});
  PrefixUser user(pool);
  const std::vector<TokenId> prompt = Counting(100, 40);
  EXPECT_EQ(user.CachedTokens("a", prompt), 0);
  user.Write("a", prompt);
  EXPECT_EQ(user.CachedTokens("b", prompt), 0);
  EXPECT_EQ(user.CachedTokens("", prompt), 0);
  user.Write("b", prompt);
  EXPECT_EQ(user.CachedTokens("a", prompt), 32);
  EXPECT_EQ(pool.Root(""), pool.Root(std::string()));
}

// A salt whose bytes spell something else that is hashed (a parent and its tokens) is still a salt.
TEST(BlockPoolFaults, B068SaltsHaveTheirOwnSpaceOfKeys) {
  BlockPool pool({.num_blocks = 1, .block_size = 4, .hash_key = 7});
  const BlockHash root = pool.Root("");
  const std::vector<TokenId> tokens = Counting(1, 4);
  std::string spelled(reinterpret_cast<const char*>(&root), sizeof(root));
  spelled.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId));
  EXPECT_NE(pool.Root(spelled), pool.Chain(root, tokens));
  EXPECT_NE(pool.Root(std::string(1, '\0')), root);
  EXPECT_NE(pool.Root("X"), pool.Root("x"));
}

TEST(BlockPoolFaults, B070OnlyFullBlocksAreShared) {
  BlockPool pool({.num_blocks = 8, .block_size = 16});
  PrefixUser user(pool);
  user.Write("", Tokens({1, 2, 3}));
  EXPECT_EQ(user.CachedTokens("", Tokens({1, 2, 3, 4, 5})), 0);
  EXPECT_EQ(user.CachedTokens("", Tokens({1, 2, 3, 9})), 0);
  user.Write("", Counting(1, 20));
  EXPECT_EQ(user.CachedTokens("", Counting(1, 20)), 16);
  EXPECT_EQ(user.CachedTokens("", Counting(1, 15)), 0);
}

// 40 ids, cut back to 20 and continued otherwise: the second writer's blocks must not pass for the
// first one's.
TEST(BlockPoolFaults, B071ACutPrefixIsHitOnlyAsFarAsItGoes) {
  BlockPool pool({.num_blocks = 40, .block_size = 4});
  PrefixUser user(pool);
  const std::vector<TokenId> whole = Counting(0, 40);
  std::vector<TokenId> cut(whole.begin(), whole.begin() + 20);
  for (int i = 0; i < 20; ++i) cut.push_back(TokenId(500 + i));
  user.Write("", cut);
  EXPECT_EQ(user.CachedTokens("", whole), 20);
  EXPECT_EQ(user.CachedTokens("", cut), 40);
}

}  // namespace
}  // namespace spry
