#include "kv/block_pool.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace spry {
namespace {

// Each kind of root hashes with its own seed, so that a salt can never stand for another kind of
// root nor for a prefix of tokens.
constexpr uint64_t kSaltDomain = 0x9e3779b97f4a7c15;

BlockHash HashBytes(const void* bytes, size_t size, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes, size, seed);
  return {.low = hash.low64, .high = hash.high64};
}

}  // namespace

BlockPool::BlockPool(const BlockPoolOptions& options) : options_(options) {
  CHECK(options.num_blocks > 0);
  CHECK(options.block_size > 0 && options.block_size <= kMaxBlockSize);
  blocks_.resize(options.num_blocks);
  tokens_.resize(static_cast<size_t>(options.num_blocks) * options.block_size);
  index_.assign(std::bit_ceil(2 * static_cast<size_t>(options.num_blocks)), kNone);
  index_mask_ = index_.size() - 1;
  // Pushed to the head, so the lowest is allocated first.
  for (int32_t block = options.num_blocks - 1; block >= 0; --block) PushFree(block);
}

std::optional<BlockId> BlockPool::Allocate() {
  if (num_free_ == 0) return std::nullopt;
  const int32_t block = free_head_;
  TakeFree(block);
  if (blocks_[block].published) Forget(block);
  blocks_[block].references = 1;
  return BlockId(block);
}

void BlockPool::Retain(BlockId block) {
  Block& b = blocks_[block.value()];
  if (b.references == 0) TakeFree(block.value());
  ++b.references;
}

void BlockPool::Release(BlockId block) {
  Block& b = blocks_[block.value()];
  CHECK(b.references > 0);
  if (--b.references == 0) PushFree(block.value());
}

BlockHash BlockPool::Root(std::string_view salt) const {
  return HashBytes(salt.data(), salt.size(), options_.hash_key ^ kSaltDomain);
}

BlockHash BlockPool::Chain(BlockHash parent, std::span<const TokenId> block_tokens) const {
  CHECK(static_cast<int>(block_tokens.size()) == options_.block_size);
  std::byte bytes[sizeof(BlockHash) + kMaxBlockSize * sizeof(TokenId)];
  std::memcpy(bytes, &parent, sizeof(parent));
  std::memcpy(bytes + sizeof(parent), block_tokens.data(), block_tokens.size_bytes());
  return HashBytes(bytes, sizeof(parent) + block_tokens.size_bytes(), options_.hash_key);
}

std::optional<BlockId> BlockPool::Find(BlockHash hash,
                                       std::span<const TokenId> block_tokens) const {
  const int32_t block = index_[SlotOf(hash)];
  if (block == kNone || !std::ranges::equal(TokensOf(block), block_tokens)) return std::nullopt;
  return BlockId(block);
}

void BlockPool::Publish(BlockId block, BlockHash hash, std::span<const TokenId> block_tokens) {
  CHECK(references(block) > 0);
  CHECK(static_cast<int>(block_tokens.size()) == options_.block_size);
  if (!options_.prefix_caching) return;
  const size_t slot = SlotOf(hash);
  if (index_[slot] != kNone) return;

  Block& b = blocks_[block.value()];
  CHECK(!b.published);
  b.hash = hash;
  b.published = true;
  ++num_published_;
  index_[slot] = block.value();
  std::ranges::copy(block_tokens,
                    tokens_.begin() + static_cast<int64_t>(block.value()) * options_.block_size);
}

bool BlockPool::ResetPrefixCache() {
  for (int32_t block = free_head_; block != kNone; block = blocks_[block].next) {
    if (blocks_[block].published) Forget(block);
  }
  return num_published_ == 0;
}

std::span<const TokenId> BlockPool::TokensOf(int32_t block) const {
  return std::span(tokens_).subspan(static_cast<size_t>(block) * options_.block_size,
                                    options_.block_size);
}

void BlockPool::PushFree(int32_t block) {
  const bool first = !blocks_[block].published;
  const int32_t previous = first ? kNone : free_tail_;
  const int32_t next = first ? free_head_ : kNone;
  blocks_[block].previous = previous;
  blocks_[block].next = next;
  (previous == kNone ? free_head_ : blocks_[previous].next) = block;
  (next == kNone ? free_tail_ : blocks_[next].previous) = block;
  ++num_free_;
}

void BlockPool::TakeFree(int32_t block) {
  const Block& b = blocks_[block];
  (b.previous == kNone ? free_head_ : blocks_[b.previous].next) = b.next;
  (b.next == kNone ? free_tail_ : blocks_[b.next].previous) = b.previous;
  --num_free_;
}

size_t BlockPool::SlotOf(BlockHash hash) const {
  size_t slot = hash.low & index_mask_;
  while (index_[slot] != kNone && blocks_[index_[slot]].hash != hash) {
    slot = (slot + 1) & index_mask_;
  }
  return slot;
}

void BlockPool::Forget(int32_t block) {
  size_t hole = SlotOf(blocks_[block].hash);
  CHECK(index_[hole] == block);
  // Shift back every later entry of the run whose search would otherwise stop at the hole: one
  // whose home does not lie between the hole and where it is now.
  for (size_t slot = (hole + 1) & index_mask_; index_[slot] != kNone;
       slot = (slot + 1) & index_mask_) {
    const size_t home = blocks_[index_[slot]].hash.low & index_mask_;
    if (((slot - home) & index_mask_) >= ((slot - hole) & index_mask_)) {
      index_[hole] = index_[slot];
      hole = slot;
    }
  }
  index_[hole] = kNone;
  blocks_[block].published = false;
  --num_published_;
}

}  // namespace spry
