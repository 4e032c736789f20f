// AMD GPUs of the CDNA kind (gfx90a, gfx942, ...), compiled by clang as HIP. Written with the
// compiler's builtins, so that no vendor header is needed.
//
// Memory orders are those of the names, at system scope: a peer GPU, a NIC and the CPU are parties,
// which the memory must allow (the heap is uncached). What only this GPU's kernels share has names
// of its own (claim_add, claim_swap). A warp is a wave of 64 lanes.
#pragma once

#include "kernels/arch/integers.hpp"

#define RSH_DEVICE __attribute__((device, always_inline)) inline
#define RSH_DEVICE_CALL static __attribute__((device, noinline))
#define RSH_UNROLL _Pragma("unroll")
#define RSH_ROLLED _Pragma("unroll 1")
// Any number of threads may be launched.
#define RSH_KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 1024))) void
// One wave at most: nothing is kept from it for the sake of others.
#define RSH_WARP_KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 64))) void

// Device code has no C library.
__attribute__((device, always_inline)) inline void* memcpy(void* to, const void* from,
                                                           __SIZE_TYPE__ bytes) {
  return __builtin_memcpy(to, from, bytes);
}

namespace railshmem::arch {

enum class Scope : uint8_t { thread, warp, block };

constexpr bool kOnHost = false;

// ---- who am I ----------------------------------------------------------------------------------

// Blocks have one dimension, and whole waves.
template <Scope S>
RSH_DEVICE uint32_t rank() {
  if constexpr (S == Scope::block) return __builtin_amdgcn_workitem_id_x();
  if constexpr (S == Scope::warp)
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  return 0;
}
template <Scope S>
RSH_DEVICE uint32_t size() {
  if constexpr (S == Scope::block) return __builtin_amdgcn_workgroup_size_x();
  if constexpr (S == Scope::warp) return __builtin_amdgcn_wavefrontsize();
  return 1;
}
template <Scope S>
RSH_DEVICE bool leader() {
  return rank<S>() == 0;
}
template <Scope S>
RSH_DEVICE void sync() {
  if constexpr (S == Scope::block) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  }
  if constexpr (S == Scope::warp) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
  }
}
// True for every thread of the scope when it is true for all of them; they meet here.
template <Scope S>
RSH_DEVICE bool all(bool mine) {
  if constexpr (S == Scope::block) {
    static __attribute__((shared)) uint32_t refused;
    if (leader<S>()) refused = 0;
    sync<S>();
    if (!mine) __hip_atomic_store(&refused, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    sync<S>();
    const bool together = refused == 0;
    sync<S>();  // the word is free again
    return together;
  }
  if constexpr (S == Scope::warp) {
    sync<S>();
    return __builtin_amdgcn_ballot_w64(!mine) == 0;
  }
  return mine;
}

RSH_DEVICE uint32_t block() {
  return __builtin_amdgcn_workgroup_id_x();
}
RSH_DEVICE uint32_t blocks() {
  return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
}

// ---- memory that others see --------------------------------------------------------------------

template <class T>
RSH_DEVICE T load_relaxed(const T* at) {
  return __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE T load_acquire(const T* at) {
  return __hip_atomic_load(at, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE void store_relaxed(T* at, T value) {
  __hip_atomic_store(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE void store_release(T* at, T value) {
  __hip_atomic_store(at, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
// Ordered with a later load of another word, and with an earlier store of another one.
template <class T>
RSH_DEVICE void store_ordered(T* at, T value) {
  __hip_atomic_store(at, value, __ATOMIC_SEQ_CST, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE T load_ordered(const T* at) {
  return __hip_atomic_load(at, __ATOMIC_SEQ_CST, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE T fetch_add(T* at, T value) {
  return __hip_atomic_fetch_add(at, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE T fetch_and(T* at, T value) {
  return __hip_atomic_fetch_and(at, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE T fetch_or(T* at, T value) {
  return __hip_atomic_fetch_or(at, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE T fetch_xor(T* at, T value) {
  return __hip_atomic_fetch_xor(at, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
RSH_DEVICE T exchange(T* at, T value) {
  return __hip_atomic_exchange(at, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
}
// Returns what was there; stores `value` when that equals `expected`.
template <class T>
RSH_DEVICE T compare_swap(T* at, T expected, T value) {
  __hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE,
                                       __HIP_MEMORY_SCOPE_SYSTEM);
  return expected;
}
// Among the kernels of this GPU only, and ordered with nothing: for counters that hand out places.
template <class T>
RSH_DEVICE T claim_add(T* at, T value) {
  return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
// Among the kernels of this GPU only.
template <class T>
RSH_DEVICE T claim_swap(T* at, T expected, T value) {
  __hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE,
                                       __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}

// Everything this thread wrote or saw is visible to whoever sees what it writes next.
RSH_DEVICE void fence_system() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}
// Before a command that announces data which kernels wrote: the engine that executes it reads
// memory by itself.
RSH_DEVICE void fence_payload() {
  fence_system();
}

// Two words of 8 bytes, of several pairs of which store_last_pair is the last.
RSH_DEVICE void store_pair(uint64_t* at, uint64_t first, uint64_t second) {
  store_relaxed(at + 1, second);
  store_relaxed(at, first);
}
// A pair whose first word tells that both are there: who acquires it sees the second.
RSH_DEVICE void store_tagged(uint64_t* at, uint64_t tag, uint64_t value) {
  store_relaxed(at + 1, value);
  store_release(at, tag);
}
// The tag, and what was stored with it.
RSH_DEVICE uint64_t load_tagged(const uint64_t* at, uint64_t* value) {
  const uint64_t tag = load_acquire(at);
  *value = load_relaxed(at + 1);
  return tag;
}
// Publishes all pairs to whoever acquires its first word: one release for all of them. Nobody can
// be woken from here.
RSH_DEVICE void store_last_pair(uint64_t* at, uint64_t first, uint64_t second) {
  store_relaxed(at + 1, second);
  store_release(at, first);
}

// What nobody changes while a kernel runs.
template <class T>
RSH_DEVICE const T& fixed(const T& at) {
  return at;
}
// The word as it is, or as it was when this thread last waited for something.
RSH_DEVICE uint32_t load_lately(const uint32_t* at) {
  return load_relaxed(at);
}
// Adds to a counter whose value nobody wants now.
RSH_DEVICE void count_one(uint64_t* counter) {
  claim_add(counter, uint64_t{1});
}

// claim_add of 1. The compiler takes places for a whole wave with one atomic by itself.
RSH_DEVICE uint64_t claim_together(uint64_t* counter) {
  return claim_add(counter, uint64_t{1});
}

// ---- copies ------------------------------------------------------------------------------------

using Vec16 = uint32_t __attribute__((ext_vector_type(4)));
RSH_DEVICE Vec16 load_once(const Vec16* at) {  // read once
  return __builtin_nontemporal_load(at);
}
RSH_DEVICE void store_once(Vec16* at, const Vec16& v) {
  __builtin_nontemporal_store(v, at);
}

// ---- time and waiting --------------------------------------------------------------------------

RSH_DEVICE uint64_t clock_ns() {
  return __builtin_amdgcn_s_memrealtime() * 10;  // of the 100 MHz clock that all units share
}

// A waiting thread leaves the unit to others for a moment, then looks again; what is dear (the
// clock, the host's words across PCIe) it looks at every few milliseconds, as on NVIDIA's.
class Backoff {
 public:
  RSH_DEVICE explicit Backoff(uint32_t) {}
  RSH_DEVICE void step(bool /*worked*/ = false) {
    __builtin_amdgcn_s_sleep(1);
    ++count_;
  }
  RSH_DEVICE bool long_look() const { return (count_ & 4095) == 0; }
  RSH_DEVICE bool interrupted() const { return false; }

 private:
  uint32_t count_ = 0;
};

// A GPU cannot wake a thread of the host: whoever reads what GPUs write does not sleep.
RSH_DEVICE void wake(uint32_t*) {}

// ---- the grid ----------------------------------------------------------------------------------

// What the blocks of a grid meet at: zeroed once, in this GPU's memory, used by one grid at a time.
// Bit 0 says that a block failed, for good; the rest counts in twos.
struct GridWords {
  uint32_t met;
  uint32_t came;
};

// All blocks meet and learn whether all are well. Every block must come, also after a failure: a
// block that stays away would hang the others. The grid was launched so that all its blocks run at
// once.
RSH_DEVICE bool sync_grid(GridWords* words, bool ok) {
  const bool here = all<Scope::block>(ok);
  if (blocks() == 1) return here;
  uint32_t now = 0;
  if (leader<Scope::block>()) {
    if (!here) __hip_atomic_fetch_or(&words->met, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    // The top bit turns when all have come: block 0 adds what the others leave to the next turn.
    const uint32_t mine = block() == 0 ? 0x80000000u - 2 * (blocks() - 1) : 2u;
    const uint32_t before =
        __hip_atomic_fetch_add(&words->met, mine, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    do {
      __builtin_amdgcn_s_sleep(1);
      now = __hip_atomic_load(&words->met, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
    } while (((now ^ before) & 0x80000000u) == 0);
  }
  return all<Scope::block>((now & 1) == 0);
}

// What a block learns when it has done its part: whether it is the last one, and then, whether all
// are well. The last sees what the others did; they do not wait.
struct Arrival {
  bool last;
  bool ok;
};
RSH_DEVICE Arrival arrive_at_grid(GridWords* words, bool ok) {
  const bool here = all<Scope::block>(ok);
  if (blocks() == 1) return {true, here};
  bool last = false, well = here;
  if (leader<Scope::block>()) {
    if (!here) __hip_atomic_fetch_or(&words->came, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    const uint32_t everybody = 2 * blocks();
    const uint32_t before =
        __hip_atomic_fetch_add(&words->came, 2u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    // The last one makes the count 0 again; nobody else looks at it before the next launch or
    // sync_grid.
    last = (before & ~1u) + 2 == everybody;
    if (last)
      __hip_atomic_fetch_add(&words->came, 0u - everybody, __ATOMIC_RELAXED,
                             __HIP_MEMORY_SCOPE_AGENT);
    well = well && (before & 1) == 0;
  }
  return {!all<Scope::block>(!last), all<Scope::block>(well)};
}

// ---- the lanes of a warp -----------------------------------------------------------------------

// The bits of lanes 0 to 31 that say yes; the whole warp comes.
RSH_DEVICE uint32_t ballot(bool mine) {
  return static_cast<uint32_t>(__builtin_amdgcn_ballot_w64(mine));
}
// The value of another lane; the whole warp comes.
template <class T>
RSH_DEVICE T from_lane(T mine, uint32_t lane) {
  static_assert(sizeof(T) % 4 == 0, "lanes pass words of 4 bytes");
  int words[sizeof(T) / 4];
  memcpy(words, &mine, sizeof mine);
  RSH_UNROLL
  for (uint32_t i = 0; i < sizeof(T) / 4; ++i)
    words[i] = __builtin_amdgcn_ds_bpermute(static_cast<int>(lane * 4), words[i]);
  memcpy(&mine, words, sizeof mine);
  return mine;
}
// Sets bits in a word that only this warp's lanes change meanwhile.
RSH_DEVICE void set_bits(uint32_t* word, uint32_t bits) {
  __hip_atomic_fetch_or(word, bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
RSH_DEVICE uint32_t count_ones(uint32_t bits) {
  return static_cast<uint32_t>(__builtin_popcount(bits));
}
RSH_DEVICE uint32_t lowest_one(uint32_t bits) {
  return static_cast<uint32_t>(__builtin_ctz(bits));
}

}  // namespace railshmem::arch

#include "kernels/arch/numbers.hpp"

namespace railshmem::arch {

// ---- number formats: rounded to nearest even ---------------------------------------------------

namespace detail {

template <class To, class From>
RSH_DEVICE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
template <uint32_t Bytes>
struct Word;
template <>
struct Word<1> {
  using Bits = uint8_t;
};
template <>
struct Word<2> {
  using Bits = uint16_t;
};
template <>
struct Word<4> {
  using Bits = uint32_t;
};
template <class T>
using BitsOf = typename Word<sizeof(T)>::Bits;

}  // namespace detail

RSH_DEVICE float from_fp16(uint16_t half) {
  return static_cast<float>(detail::bits<_Float16>(half));
}
RSH_DEVICE uint16_t to_fp16(float value) {
  return detail::bits<uint16_t>(static_cast<_Float16>(value));
}
RSH_DEVICE uint16_t to_bf16(float value) {
  return soft::to_bf16(value);
}
RSH_DEVICE uint8_t to_e4m3(float value) {
  return soft::to_e4m3(value);
}

}  // namespace railshmem::arch

#include "kernels/arch/gpu_copy.hpp"
#include "kernels/arch/gpu_rows.hpp"
