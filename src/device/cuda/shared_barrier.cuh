// Barriers in shared memory (mbarrier) that threads and bulk copies arrive at, also from other
// blocks of a cluster, and the bulk copies themselves: Hopper's own. (PTX ISA, mbarrier and
// cp.async.bulk.)
#pragma once

#include <cstdint>

namespace spry::cuda {

// A phase ends with the last of `arrivals` and of the bytes expected in it. Phase n has parity
// n % 2; to wait for the parity of the phase before the first returns at once.
class SharedBarrier {
 public:
  __device__ void Init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(Address()), "r"(arrivals)
                 : "memory");
  }
  // One thread, after its Inits and before the barrier that lets others see them.
  __device__ static void FenceInit() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void Arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(Address()) : "memory");
  }
  __device__ void ArriveAndExpect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Address()),
                 "r"(bytes)
                 : "memory");
  }
  // Once all copies of this thread by CopyAsync16 (mma.cuh) have ended; it does not wait for them.
  __device__ void ArriveWithCopies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(Address())
                 : "memory");
  }
  // At this barrier of block `rank` of the cluster; what was written before is seen there.
  __device__ void ArriveAt(int rank) {
    asm volatile(
        "{ .reg .b32 at; mapa.shared::cluster.u32 at, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [at]; }" ::"r"(Address()),
        "r"(rank)
        : "memory");
  }
  __device__ void Await(int parity) {
    while (!Test(parity)) {
    }
  }
  // Sees what other blocks wrote before they arrived.
  __device__ void AwaitCluster(int parity) {
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{ .reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(Address()), "r"(parity)
          : "memory");
    }
  }
  // `bytes`, a multiple of 16, from global to shared memory; they count as expected ones.
  __device__ void Copy(void* shared, const void* global, int bytes) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(global), "r"(bytes), "r"(Address())
        : "memory");
  }

  // The same from this block's shared memory to that of block `rank`, at its barrier; both
  // addresses are those that this block would use for itself.
  __device__ void CopyToBlock(int rank, void* to, const void* from, int bytes) {
    asm volatile(
        "{ .reg .b32 to, at; mapa.shared::cluster.u32 to, %0, %4;\n"
        "mapa.shared::cluster.u32 at, %3, %4;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [%1], %2, "
        "[at]; }" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
        "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))), "r"(bytes), "r"(Address()),
        "r"(rank)
        : "memory");
  }

 private:
  __device__ uint32_t Address() const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(&bits_));
  }
  __device__ bool Test(int parity) {
    uint32_t done;
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(Address()), "r"(parity)
        : "memory");
    return done != 0;
  }

  uint64_t bits_;
};

// Position in a ring of stages; the phase changes with every round.
template <int kStages>
struct RingPlace {
  int stage = 0;
  int phase = 0;

  __device__ void Step() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
  __device__ int Before() const { return stage == 0 ? kStages - 1 : stage - 1; }
};

// A barrier of a part of a block's threads, by number; 0 is that of all of them.
__device__ inline void AwaitNamed(int barrier, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// One thread of a whole warp; the compiler knows that it is one, which spares every bulk copy a
// loop over the threads that might want it.
__device__ inline bool IsElected() {
  uint32_t elected;
  asm volatile(
      "{ .reg .pred p; elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p; }"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace spry::cuda
