// The pool against a plain model of maps and lists, under seeded random operations.
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <random>
#include <vector>

#include "kv/block_pool.h"

namespace spry {
namespace {

constexpr int kBlockSize = 2;

using Tokens = std::vector<TokenId>;
using Key = std::pair<uint64_t, uint64_t>;

class PoolModel {
 public:
  explicit PoolModel(int num_blocks) : references_(num_blocks) {
    for (int block = 0; block < num_blocks; ++block) free_.push_back(block);
  }

  int num_free() const { return static_cast<int>(free_.size()); }
  int references(int block) const { return references_[block]; }
  bool IsPublished(int block) const { return keys_.contains(block); }

  std::optional<BlockId> Allocate() {
    if (free_.empty()) return std::nullopt;
    const int block = free_.front();
    free_.pop_front();
    Forget(block);
    references_[block] = 1;
    return BlockId(block);
  }

  void Retain(int block) {
    if (references_[block]++ == 0) free_.remove(block);
  }

  void Release(int block) {
    if (--references_[block] > 0) return;
    free_.insert(IsPublished(block) ? free_.end() : free_.begin(), block);
  }

  void Publish(int block, BlockHash hash, const Tokens& tokens) {
    const Key key{hash.low, hash.high};
    if (published_.emplace(key, std::pair(block, tokens)).second) keys_[block] = key;
  }

  std::optional<BlockId> Find(BlockHash hash, const Tokens& tokens) const {
    const auto found = published_.find({hash.low, hash.high});
    if (found == published_.end() || found->second.second != tokens) return std::nullopt;
    return BlockId(found->second.first);
  }

  bool Reset() {
    for (int block : free_) Forget(block);
    return published_.empty();
  }

 private:
  void Forget(int block) {
    const auto found = keys_.find(block);
    if (found == keys_.end()) return;
    published_.erase(found->second);
    keys_.erase(found);
  }

  std::vector<int> references_;
  std::list<int> free_;
  std::map<Key, std::pair<int, Tokens>> published_;
  std::map<int, Key> keys_;
};

class RandomPool {
 public:
  RandomPool(uint64_t seed, int num_blocks)
      : random_(seed),
        num_blocks_(num_blocks),
        pool_({.num_blocks = num_blocks, .block_size = kBlockSize, .hash_key = seed}),
        model_(num_blocks) {}

  void Step() {
    const int block = Draw(num_blocks_);
    const BlockId id(block);
    switch (Draw(100)) {
      case 0 ... 29: ASSERT_EQ(pool_.Allocate(), model_.Allocate()); break;
      case 30 ... 39:
        pool_.Retain(id);
        model_.Retain(block);
        break;
      case 40 ... 69:
        if (model_.references(block) == 0) break;
        pool_.Release(id);
        model_.Release(block);
        break;
      case 70 ... 98: {
        if (model_.references(block) == 0 || model_.IsPublished(block)) break;
        const auto [hash, tokens] = DrawPrefix();
        pool_.Publish(id, hash, tokens);
        model_.Publish(block, hash, tokens);
        break;
      }
      default: ASSERT_EQ(pool_.ResetPrefixCache(), model_.Reset());
    }
    Compare();
  }

 private:
  int Draw(int bound) { return static_cast<int>(random_() % bound); }

  // Few different ones, with homes crowded at both ends of the index, and rare collisions.
  std::pair<BlockHash, Tokens> DrawPrefix() {
    const uint64_t n = Draw(3 * num_blocks_);
    const BlockHash hash{.low = n % 7 - 3, .high = n};
    return {hash, {TokenId(static_cast<int>(n)), TokenId(Draw(8) == 0 ? 1 : 0)}};
  }

  void Compare() {
    ASSERT_EQ(pool_.num_free(), model_.num_free());
    for (int i = 0; i < 4; ++i) {
      const auto [hash, tokens] = DrawPrefix();
      ASSERT_EQ(pool_.Find(hash, tokens), model_.Find(hash, tokens));
      const int block = Draw(num_blocks_);
      ASSERT_EQ(pool_.references(BlockId(block)), model_.references(block));
    }
    ASSERT_EQ(pool_.CheckIntegrity().message(), "");
  }

  std::mt19937_64 random_;
  int num_blocks_;
  BlockPool pool_;
  PoolModel model_;
};

TEST(BlockPoolRandom, EqualsAPlainModel) {
  for (int num_blocks : {1, 2, 5, 16, 33}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(testing::Message() << num_blocks << " blocks, seed " << seed);
      RandomPool random_pool(seed, num_blocks);
      for (int i = 0; i < 2000; ++i) {
        SCOPED_TRACE(testing::Message() << "operation " << i);
        ASSERT_NO_FATAL_FAILURE(random_pool.Step());
      }
    }
  }
}

}  // namespace
}  // namespace spry
