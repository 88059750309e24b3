// Who owns which KV block, and which blocks already hold a known prefix. Bookkeeping only: ids and
// hashes, no device memory. Owned and called by the engine thread alone. After construction nothing
// allocates.
//
//            Allocate                 Release (last)
//   free ---------------> in use -----------------------> free, at the tail of the LRU list;
//                                                         at its head if never published: nothing
//                                                         is lost, and its memory is still warm
//                            ^            |
//                    Retain  +--- Find ---+  a published block can be hit while in use and while
//                                            free, until Allocate hands it out again (eviction)
//
// Invariants (CheckIntegrity): every block is in use or on the free list, never both; a published
// block is found by its hash and holds the tokens it was published with; counts add up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace spry {

// Names a prefix: a keyed 128-bit hash over the salt and all tokens up to the end of a block.
struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const BlockHash&) const = default;
};

inline constexpr int kMaxBlockSize = 256;  // tokens

struct BlockPoolOptions {
  int num_blocks = 0;
  int block_size = 16;         // tokens, 1 to kMaxBlockSize
  bool prefix_caching = true;  // off: Find finds nothing and Publish does nothing
  uint64_t hash_key = 0;       // random in production, so that nobody can craft collisions
};

class BlockPool {
 public:
  explicit BlockPool(const BlockPoolOptions& options);

  int block_size() const { return options_.block_size; }
  int num_blocks() const { return options_.num_blocks; }
  int num_free() const { return num_free_; }
  bool prefix_caching() const { return options_.prefix_caching; }
  int references(BlockId block) const { return blocks_[block.value()].references; }

  // A block with one reference, from the head of the LRU list; what was published in it is
  // forgotten. Nothing when every block is in use.
  std::optional<BlockId> Allocate();
  // One more reference; the block may be in use or free.
  void Retain(BlockId block);
  // One reference less; the last one makes the block free, its published prefix still to be hit.
  // A request releases its blocks last to first, so that the tail of a prefix is evicted first.
  void Release(BlockId block);

  // The hash that a request's first block is chained to. Requests with different salts share
  // nothing; the empty salt is no salt. Salts and (later) adapters never share a space of keys.
  BlockHash Root(std::string_view salt) const;
  BlockHash Chain(BlockHash parent, std::span<const TokenId> block_tokens) const;

  // The block that holds exactly these tokens after the prefix that `hash` names (the tokens of the
  // block are compared, so a collision within a block cannot give a wrong hit). Takes no reference.
  std::optional<BlockId> Find(BlockHash hash, std::span<const TokenId> block_tokens) const;
  // Makes an in-use block hittable. No effect when the hash is known already (first one wins). A
  // block is published once in its use.
  void Publish(BlockId block, BlockHash hash, std::span<const TokenId> block_tokens);

  // Forgets every published block that is free, and says whether nothing published is left (blocks
  // in use stay published).
  bool ResetPrefixCache();

  // Internal error naming the first broken invariant.
  Status CheckIntegrity() const;

 private:
  static constexpr int32_t kNone = -1;

  struct Block {
    BlockHash hash;  // while published
    int32_t references = 0;
    int32_t previous = kNone;  // neighbours on the free list, while free
    int32_t next = kNone;
    bool published = false;
  };

  std::span<const TokenId> TokensOf(int32_t block) const;
  void PushFree(int32_t block);
  void TakeFree(int32_t block);
  // Where the index holds the hash, or the empty slot that ends the search for it.
  size_t SlotOf(BlockHash hash) const;
  void Forget(int32_t block);
  Status CheckFreeList() const;
  Status CheckIndex() const;

  BlockPoolOptions options_;
  int num_free_ = 0;
  int num_published_ = 0;
  std::vector<Block> blocks_;
  std::vector<TokenId> tokens_;  // [num_blocks, block_size], of published blocks
  // The free list, by block number: the next to be allocated at the head.
  int32_t free_head_ = kNone;
  int32_t free_tail_ = kNone;
  // Open addressing with linear probing: block numbers at the slots of their hashes. A power of two
  // of at least twice num_blocks, so that it never grows and a search is short. Removing shifts
  // later entries back, so there are no tombstones to clean up.
  std::vector<int32_t> index_;
  size_t index_mask_ = 0;
};

}  // namespace spry
