#include "sched/scheduler.h"

namespace spry {

std::span<const TokenId> Scheduler::BlockTokens(const Request& request, int index) const {
  return std::span(request.tokens)
      .subspan(static_cast<size_t>(index) * pool_.block_size(), pool_.block_size());
}

// Hashes are made in order, when first asked for: a request that waits costs nothing.
BlockHash Scheduler::HashOfBlock(Request& request, int index) const {
  if (index == static_cast<int>(request.hashes.size())) {
    const BlockHash parent = index == 0 ? request.root : request.hashes[index - 1];
    request.hashes.push_back(pool_.Chain(parent, BlockTokens(request, index)));
  }
  return request.hashes[index];
}

// Fills the request's blocks with the longest cached prefix, without taking references. What a
// step still has to sample is left to compute: one token at least, and every position of the prompt
// whose log-probabilities are owed.
void Scheduler::FindCachedBlocks(Request& request) const {
  if (!pool_.prefix_caching()) return;
  const int num_tokens = static_cast<int>(request.tokens.size());
  const int most = OwesTargets(request) ? request.num_judged : num_tokens - 1;
  const int num_full = most / pool_.block_size();
  for (int i = 0; i < num_full; ++i) {
    const std::optional<BlockId> block =
        pool_.Find(HashOfBlock(request, i), BlockTokens(request, i));
    if (!block) return;
    request.blocks.push_back(*block);
  }
}

// Lets others hit the full blocks among the first `num_tokens` tokens, which must be known and
// computed by a launched step.
void Scheduler::PublishBlocks(Request& request, int num_tokens) {
  if (!pool_.prefix_caching()) return;
  while ((request.num_published + 1) * pool_.block_size() <= num_tokens) {
    const int i = request.num_published++;
    pool_.Publish(request.blocks[i], HashOfBlock(request, i), BlockTokens(request, i));
  }
}

}  // namespace spry
