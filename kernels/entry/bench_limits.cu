// What the hardware does without the library, for the same work as the kernels of bench.cu: plain
// loads and stores, written by hand. Peers' memory comes as plain addresses.
#include "kernels/arch/arch.hpp"

namespace railshmem::bench {
namespace {

using arch::Scope;

// Looks at a word before a kernel gives its partner up.
constexpr uint64_t kPatience = uint64_t{1} << 26;

RSH_DEVICE uint64_t share_of(uint64_t bytes) {
  return (bytes / arch::blocks() + 127) / 128 * 128;
}

}  // namespace

// Vectors of 16 bytes, eight of them in flight per thread; every block copies its own piece, again
// and again. `fence_each`: what was copied is visible to everybody before the next round.
RSH_KERNEL rsh_limit_copy(void* dest, const void* source, uint64_t bytes, uint32_t count,
                          uint32_t fence_each) {
  constexpr int kBatch = 8;
  const uint64_t share = share_of(bytes);
  const uint64_t first = share * arch::block();
  if (first >= bytes) return;
  const uint64_t vectors = (bytes - first < share ? bytes - first : share) / 16;
  auto* to = reinterpret_cast<arch::Vec16*>(static_cast<char*>(dest) + first);
  const auto* from = reinterpret_cast<const arch::Vec16*>(static_cast<const char*>(source) + first);
  const uint64_t me = arch::rank<Scope::block>(), all = arch::size<Scope::block>();
  for (uint32_t round = 0; round < count; ++round) {
    for (uint64_t i = me; i < vectors; i += kBatch * all) {
      arch::Vec16 v[kBatch];
      RSH_UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (i + k * all < vectors) v[k] = arch::load_once(from + i + k * all);
      RSH_UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (i + k * all < vectors) arch::store_once(to + i + k * all, v[k]);
    }
    arch::sync<Scope::block>();  // without it the compiler would keep one round of all
    if (fence_each == 0) continue;
    if (arch::leader<Scope::block>()) arch::fence_system();  // for the block: it has met
    arch::sync<Scope::block>();
  }
}

// A word and a fence.
RSH_WARP_KERNEL rsh_limit_p(uint64_t* dest, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    arch::store_relaxed(dest, uint64_t{i});
    arch::fence_system();
  }
}

RSH_WARP_KERNEL rsh_limit_atomic(uint64_t* word, uint32_t count, uint64_t* result) {
  uint64_t seen = 0;
  for (uint32_t i = 0; i < count; ++i) seen = arch::fetch_add(word, uint64_t{1});
  *result = seen;
}

// One warp: data, then a flag by a release store; the other end waits with acquire loads.
RSH_WARP_KERNEL rsh_limit_ping(uint64_t* far_data, uint64_t words, uint64_t* far_flag,
                               const uint64_t* my_flag, uint64_t start, uint32_t count,
                               uint32_t first) {
  const uint32_t lane = arch::rank<Scope::warp>();
  for (uint32_t i = 1; i <= count; ++i) {
    for (uint32_t half = 0; half < 2; ++half) {
      if ((half == 0) == (first != 0)) {
        for (uint64_t w = lane; w < words; w += arch::size<Scope::warp>()) far_data[w] = i;
        arch::sync<Scope::warp>();
        if (lane == 0) {
          if (words > 0)
            arch::store_release(far_flag, start + i);
          else
            arch::store_relaxed(far_flag, start + i);
        }
      } else if (lane == 0) {
        uint64_t looks = 0;
        while (arch::load_acquire(my_flag) < start + i && ++looks < kPatience) {
        }
      }
      arch::sync<Scope::warp>();
    }
  }
}

// The threads write `count` commands of 64 bytes together into host memory that a thread of the CPU
// reads: four stores of 16 bytes, each with its lap. `head`: how far the reader is.
RSH_KERNEL rsh_limit_ring(uint64_t* ring, uint32_t shift, const uint64_t* head, uint64_t* tail,
                          uint64_t* head_seen, uint32_t count) {
  const uint64_t slots = uint64_t{1} << shift;
  const uint32_t each = count / (arch::blocks() * arch::size<Scope::block>());
  for (uint32_t i = 0; i < each; ++i) {
    const uint64_t mine = arch::claim_together(tail);
    for (uint64_t looks = 0; mine >= arch::load_relaxed(head_seen) + slots; ++looks) {
      arch::store_relaxed(head_seen, arch::load_relaxed(head));
      if (looks > kPatience) return;
    }
    const uint64_t lap = (mine >> shift) + 1;
    uint64_t* const slot = ring + (mine & (slots - 1)) * 8;
    for (uint32_t quarter = 1; quarter < 4; ++quarter)
      arch::store_pair(slot + quarter * 2, lap, mine);
    arch::store_last_pair(slot, lap, mine);
  }
}

// One thread writes 16 bytes to host memory and waits for the CPU's answer, `count` times.
RSH_WARP_KERNEL rsh_limit_host_trip(uint64_t* out, const uint64_t* answer, uint32_t count) {
  for (uint64_t i = 1; i <= count; ++i) {
    arch::store_pair(out, i, i);
    uint64_t looks = 0;
    while (arch::load_relaxed(answer) < i && ++looks < kPatience) {
    }
  }
}

}  // namespace railshmem::bench
