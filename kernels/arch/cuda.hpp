// NVIDIA GPUs, from compute capability 8.0 on. Included by nvcc, NVRTC and what uses NVRTC.
//
// Memory orders are those of the names, at system scope: a peer GPU, a NIC and the CPU are parties.
// What only this GPU's kernels share has names of its own (claim_add, claim_swap). None of it is
// for the shared memory of a block: addresses are global ones, which spares the code a look at
// each.
#pragma once

#include "kernels/arch/integers.hpp"

#define RSH_DEVICE __device__ __forceinline__
#define RSH_DEVICE_CALL static __device__ __noinline__
#define RSH_UNROLL _Pragma("unroll")
#define RSH_ROLLED _Pragma("unroll 1")
// Any number of threads may be launched.
#define RSH_KERNEL extern "C" __global__ void __launch_bounds__(1024)
// One warp at most: nothing is kept from it for the sake of others.
#define RSH_WARP_KERNEL extern "C" __global__ void __launch_bounds__(32)

namespace railshmem::arch {

enum class Scope : uint8_t { thread, warp, block };

constexpr bool kOnHost = false;

// ---- who am I ----------------------------------------------------------------------------------

// Blocks have one dimension.
template <Scope S>
RSH_DEVICE uint32_t rank() {
  if constexpr (S == Scope::block) return threadIdx.x;
  if constexpr (S == Scope::warp) return threadIdx.x & 31;
  return 0;
}
template <Scope S>
RSH_DEVICE uint32_t size() {
  if constexpr (S == Scope::block) return blockDim.x;
  if constexpr (S == Scope::warp) return 32;
  return 1;
}
template <Scope S>
RSH_DEVICE bool leader() {
  return rank<S>() == 0;
}
template <Scope S>
RSH_DEVICE void sync() {
  if constexpr (S == Scope::block) __syncthreads();
  if constexpr (S == Scope::warp) __syncwarp();
}
// True for every thread of the scope when it is true for all of them; they meet here.
template <Scope S>
RSH_DEVICE bool all(bool mine) {
  if constexpr (S == Scope::block) return __syncthreads_and(mine) != 0;
  if constexpr (S == Scope::warp) return __all_sync(~0u, mine) != 0;
  return mine;
}

RSH_DEVICE uint32_t block() {
  return blockIdx.x;
}
RSH_DEVICE uint32_t blocks() {
  return gridDim.x;
}

// ---- memory that others see --------------------------------------------------------------------

namespace detail {

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
template <>
struct Word<8> {
  using Bits = uint64_t;
};
template <class T>
using BitsOf = typename Word<sizeof(T)>::Bits;

template <class To, class From>
RSH_DEVICE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// PTX has no 8-bit registers.
#define RSH_CUDA_LOAD_STORE(ORDER)                                                         \
  RSH_DEVICE uint8_t load_##ORDER(const uint8_t* at) {                                     \
    uint32_t v;                                                                            \
    asm volatile("ld." #ORDER ".sys.global.u8 %0, [%1];" : "=r"(v) : "l"(at) : "memory");  \
    return static_cast<uint8_t>(v);                                                        \
  }                                                                                        \
  RSH_DEVICE uint16_t load_##ORDER(const uint16_t* at) {                                   \
    uint16_t v;                                                                            \
    asm volatile("ld." #ORDER ".sys.global.u16 %0, [%1];" : "=h"(v) : "l"(at) : "memory"); \
    return v;                                                                              \
  }                                                                                        \
  RSH_DEVICE uint32_t load_##ORDER(const uint32_t* at) {                                   \
    uint32_t v;                                                                            \
    asm volatile("ld." #ORDER ".sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory"); \
    return v;                                                                              \
  }                                                                                        \
  RSH_DEVICE uint64_t load_##ORDER(const uint64_t* at) {                                   \
    uint64_t v;                                                                            \
    asm volatile("ld." #ORDER ".sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory"); \
    return v;                                                                              \
  }
#define RSH_CUDA_STORE(ORDER)                                                                     \
  RSH_DEVICE void store_##ORDER(uint8_t* at, uint8_t v) {                                         \
    asm volatile("st." #ORDER ".sys.global.u8 [%0], %1;" ::"l"(at), "r"(static_cast<uint32_t>(v)) \
                 : "memory");                                                                     \
  }                                                                                               \
  RSH_DEVICE void store_##ORDER(uint16_t* at, uint16_t v) {                                       \
    asm volatile("st." #ORDER ".sys.global.u16 [%0], %1;" ::"l"(at), "h"(v) : "memory");          \
  }                                                                                               \
  RSH_DEVICE void store_##ORDER(uint32_t* at, uint32_t v) {                                       \
    asm volatile("st." #ORDER ".sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");          \
  }                                                                                               \
  RSH_DEVICE void store_##ORDER(uint64_t* at, uint64_t v) {                                       \
    asm volatile("st." #ORDER ".sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");          \
  }
RSH_CUDA_LOAD_STORE(relaxed)
RSH_CUDA_LOAD_STORE(acquire)
RSH_CUDA_STORE(relaxed)
RSH_CUDA_STORE(release)
#undef RSH_CUDA_LOAD_STORE
#undef RSH_CUDA_STORE

#define RSH_CUDA_ATOMIC(NAME, OP, TYPE32, TYPE64, ORDER)                 \
  RSH_DEVICE uint32_t NAME(uint32_t* at, uint32_t v) {                   \
    uint32_t old;                                                        \
    asm volatile("atom." ORDER ".global." OP "." TYPE32 " %0, [%1], %2;" \
                 : "=r"(old)                                             \
                 : "l"(at), "r"(v)                                       \
                 : "memory");                                            \
    return old;                                                          \
  }                                                                      \
  RSH_DEVICE uint64_t NAME(uint64_t* at, uint64_t v) {                   \
    uint64_t old;                                                        \
    asm volatile("atom." ORDER ".global." OP "." TYPE64 " %0, [%1], %2;" \
                 : "=l"(old)                                             \
                 : "l"(at), "l"(v)                                       \
                 : "memory");                                            \
    return old;                                                          \
  }
RSH_CUDA_ATOMIC(fetch_add, "add", "u32", "u64", "acq_rel.sys")
RSH_CUDA_ATOMIC(fetch_and, "and", "b32", "b64", "acq_rel.sys")
RSH_CUDA_ATOMIC(fetch_or, "or", "b32", "b64", "acq_rel.sys")
RSH_CUDA_ATOMIC(fetch_xor, "xor", "b32", "b64", "acq_rel.sys")
RSH_CUDA_ATOMIC(exchange, "exch", "b32", "b64", "acq_rel.sys")
RSH_CUDA_ATOMIC(claim_add, "add", "u32", "u64", "relaxed.gpu")
#undef RSH_CUDA_ATOMIC

#define RSH_CUDA_SWAP(NAME, ORDER)                                        \
  RSH_DEVICE uint32_t NAME(uint32_t* at, uint32_t expected, uint32_t v) { \
    uint32_t old;                                                         \
    asm volatile("atom." ORDER ".global.cas.b32 %0, [%1], %2, %3;"        \
                 : "=r"(old)                                              \
                 : "l"(at), "r"(expected), "r"(v)                         \
                 : "memory");                                             \
    return old;                                                           \
  }                                                                       \
  RSH_DEVICE uint64_t NAME(uint64_t* at, uint64_t expected, uint64_t v) { \
    uint64_t old;                                                         \
    asm volatile("atom." ORDER ".global.cas.b64 %0, [%1], %2, %3;"        \
                 : "=l"(old)                                              \
                 : "l"(at), "l"(expected), "l"(v)                         \
                 : "memory");                                             \
    return old;                                                           \
  }
RSH_CUDA_SWAP(compare_swap, "acq_rel.sys")
RSH_CUDA_SWAP(claim_swap, "acq_rel.gpu")
#undef RSH_CUDA_SWAP

}  // namespace detail

template <class T>
RSH_DEVICE T load_relaxed(const T* at) {
  using B = detail::BitsOf<T>;
  return detail::bits<T>(detail::load_relaxed(reinterpret_cast<const B*>(at)));
}
template <class T>
RSH_DEVICE T load_acquire(const T* at) {
  using B = detail::BitsOf<T>;
  return detail::bits<T>(detail::load_acquire(reinterpret_cast<const B*>(at)));
}
template <class T>
RSH_DEVICE void store_relaxed(T* at, T value) {
  using B = detail::BitsOf<T>;
  detail::store_relaxed(reinterpret_cast<B*>(at), detail::bits<B>(value));
}
template <class T>
RSH_DEVICE void store_release(T* at, T value) {
  using B = detail::BitsOf<T>;
  detail::store_release(reinterpret_cast<B*>(at), detail::bits<B>(value));
}

#define RSH_CUDA_FETCH(NAME)                                                                \
  template <class T>                                                                        \
  RSH_DEVICE T NAME(T* at, T value) {                                                       \
    using B = detail::BitsOf<T>;                                                            \
    return detail::bits<T>(detail::NAME(reinterpret_cast<B*>(at), detail::bits<B>(value))); \
  }
RSH_CUDA_FETCH(fetch_add)
RSH_CUDA_FETCH(fetch_and)
RSH_CUDA_FETCH(fetch_or)
RSH_CUDA_FETCH(fetch_xor)
RSH_CUDA_FETCH(exchange)
// Among the kernels of this GPU only, and ordered with nothing: for counters that hand out places.
RSH_CUDA_FETCH(claim_add)
#undef RSH_CUDA_FETCH
// Returns what was there; stores `value` when that equals `expected`.
template <class T>
RSH_DEVICE T compare_swap(T* at, T expected, T value) {
  using B = detail::BitsOf<T>;
  return detail::bits<T>(detail::compare_swap(reinterpret_cast<B*>(at), detail::bits<B>(expected),
                                              detail::bits<B>(value)));
}
// Among the kernels of this GPU only.
template <class T>
RSH_DEVICE T claim_swap(T* at, T expected, T value) {
  using B = detail::BitsOf<T>;
  return detail::bits<T>(detail::claim_swap(reinterpret_cast<B*>(at), detail::bits<B>(expected),
                                            detail::bits<B>(value)));
}

// Everything this thread wrote or saw is visible to whoever sees what it writes next.
RSH_DEVICE void fence_system() {
  __threadfence_system();
}
// Ordered with a later load of another word, and with an earlier store of another one. A fence of
// system scope each: for the host's handshakes, whose code is here only because it is shared.
template <class T>
RSH_DEVICE void store_ordered(T* at, T value) {
  store_relaxed(at, value);
  fence_system();
}
template <class T>
RSH_DEVICE T load_ordered(const T* at) {
  fence_system();
  return load_acquire(at);
}
// Before a command that announces data which kernels wrote: the engine that executes it reads
// memory by itself.
RSH_DEVICE void fence_payload() {
  __threadfence_system();
}

// Two words of 8 bytes as one store that nobody sees half of; 16-byte aligned.
RSH_DEVICE void store_pair(uint64_t* at, uint64_t first, uint64_t second) {
  // A vector store would be the same instruction, but only this form promises a single access.
  asm volatile(
      "{\n\t.reg .b128 pair;\n\tmov.b128 pair, {%1, %2};\n\t"
      "st.relaxed.sys.global.b128 [%0], pair;\n\t}" ::"l"(at),
      "l"(first), "l"(second)
      : "memory");
}
// The last of several, whose reader may sleep: nobody can be woken from here.
RSH_DEVICE void store_last_pair(uint64_t* at, uint64_t first, uint64_t second) {
  store_pair(at, first, second);
}

// A pair whose first word tells that both are there: who acquires it sees the second.
RSH_DEVICE void store_tagged(uint64_t* at, uint64_t tag, uint64_t value) {
  store_pair(at, tag, value);
}

// The tag, and what was stored with it.
RSH_DEVICE uint64_t load_tagged(const uint64_t* at, uint64_t* value) {
  uint64_t tag;
  asm volatile(
      "{\n\t.reg .b128 pair;\n\tld.relaxed.sys.global.b128 pair, [%2];\n\t"
      "mov.b128 {%0, %1}, pair;\n\t}"
      : "=l"(tag), "=l"(*value)
      : "l"(at)
      : "memory");
  return tag;
}

// What nobody changes while a kernel runs: the compiler may keep it in registers across fences and
// waits, which make it forget everything else.
template <class T>
RSH_DEVICE T fixed(const T& at) {
  if constexpr (sizeof(T) == 8) {
    uint64_t v;
    asm("ld.global.nc.u64 %0, [%1];" : "=l"(v) : "l"(&at));
    return detail::bits<T>(v);
  } else if constexpr (sizeof(T) == 4) {
    uint32_t v;
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(&at));
    return detail::bits<T>(v);
  } else {
    static_assert(sizeof(T) == 1, "words of 1, 4 and 8 bytes");
    uint32_t v;
    asm("ld.global.nc.u8 %0, [%1];" : "=r"(v) : "l"(&at));
    return detail::bits<T>(static_cast<uint8_t>(v));
  }
}
// The word as it is, or as it was when this thread last waited for something: the first-level cache
// may answer.
RSH_DEVICE uint32_t load_lately(const uint32_t* at) {
  uint32_t v;
  asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(v) : "l"(at));
  return v;
}
// Adds to a counter whose value nobody wants now.
RSH_DEVICE void count_one(uint64_t* counter) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(counter), "l"(uint64_t{1})
               : "memory");
}

// claim_add of 1, with one atomic for those threads of a warp that come at the same time.
RSH_DEVICE uint64_t claim_together(uint64_t* counter) {
  const uint32_t same = __match_any_sync(__activemask(), reinterpret_cast<uint64_t>(counter));
  const uint32_t before = same & ((1u << (threadIdx.x & 31)) - 1);
  uint64_t first = 0;
  if (before == 0) first = claim_add(counter, static_cast<uint64_t>(__popc(same)));
  first = __shfl_sync(same, first, __ffs(same) - 1);
  return first + static_cast<uint64_t>(__popc(before));
}

// ---- copies ------------------------------------------------------------------------------------

struct alignas(16) Vec16 {
  uint32_t x, y, z, w;
};
RSH_DEVICE Vec16 load_once(const Vec16* at) {  // read once: not kept in the first-level cache
  Vec16 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
RSH_DEVICE void store_once(Vec16* at, const Vec16& v) {
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
// ---- time and waiting --------------------------------------------------------------------------

RSH_DEVICE uint64_t clock_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// A waiting thread looks again at once; what is dear (the clock, the host's words across PCIe) it
// looks at every few milliseconds: the warps of a whole grid that wait are hundreds of readers, and
// commands and their answers need the same wires.
class Backoff {
 public:
  RSH_DEVICE explicit Backoff(uint32_t) {}
  RSH_DEVICE void step(bool /*worked*/ = false) { ++count_; }
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
  const bool here = __syncthreads_and(ok) != 0;
  if (gridDim.x == 1) return here;
  uint32_t now = 0;
  if (threadIdx.x == 0) {
    if (!here) atomicOr(&words->met, 1u);
    // The top bit turns when all have come: block 0 adds what the others leave to the next turn.
    const uint32_t mine = blockIdx.x == 0 ? 0x80000000u - 2 * (gridDim.x - 1) : 2u;
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(&words->met), "r"(mine)
                 : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(&words->met) : "memory");
    } while (((now ^ before) & 0x80000000u) == 0);
  }
  return __syncthreads_or((now & 1) != 0) == 0;
}

// What a block learns when it has done its part: whether it is the last one, and then, whether all
// are well. The last sees what the others did; they do not wait.
struct Arrival {
  bool last;
  bool ok;
};
RSH_DEVICE Arrival arrive_at_grid(GridWords* words, bool ok) {
  const bool here = __syncthreads_and(ok) != 0;
  if (gridDim.x == 1) return {true, here};
  uint32_t turn = 0;
  if (threadIdx.x == 0) {
    if (!here) atomicOr(&words->came, 1u);
    const uint32_t all = 2 * gridDim.x;
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(&words->came), "r"(2u)
                 : "memory");
    // The last one makes the count 0 again; nobody else looks at it before the next launch or
    // sync_grid.
    const bool last = (before & ~1u) + 2 == all;
    if (last) atomicSub(&words->came, all);
    turn = (last ? 1u : 0u) | (before & 1u) << 1;
  }
  return {__syncthreads_or((turn & 1) != 0) != 0, __syncthreads_or((turn & 2) != 0) == 0 && here};
}

// ---- the lanes of a warp -----------------------------------------------------------------------

// The bits of lanes 0 to 31 that say yes; the whole warp comes.
RSH_DEVICE uint32_t ballot(bool mine) {
  return __ballot_sync(~0u, mine);
}
// The value of another lane; the whole warp comes.
template <class T>
RSH_DEVICE T from_lane(T mine, uint32_t lane) {
  return __shfl_sync(~0u, mine, static_cast<int>(lane));
}
// Sets bits in a word that only this warp's lanes change meanwhile.
RSH_DEVICE void set_bits(uint32_t* word, uint32_t bits) {
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(word), "r"(bits) : "memory");
}
RSH_DEVICE uint32_t count_ones(uint32_t bits) {
  return static_cast<uint32_t>(__popc(bits));
}
RSH_DEVICE uint32_t lowest_one(uint32_t bits) {
  return static_cast<uint32_t>(__ffs(static_cast<int>(bits)) - 1);
}

// ---- number formats: rounded to nearest even ---------------------------------------------------

RSH_DEVICE float from_fp16(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
RSH_DEVICE uint16_t to_fp16(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
RSH_DEVICE uint16_t to_bf16(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

}  // namespace railshmem::arch

#include "kernels/arch/numbers.hpp"

namespace railshmem::arch {

// The largest finite value, 448, stands for all that is larger.
RSH_DEVICE uint8_t to_e4m3(float value) {
#if __CUDA_ARCH__ >= 890
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return static_cast<uint8_t>(pair);
#else
  return soft::to_e4m3(value);
#endif
}

}  // namespace railshmem::arch

#include "kernels/arch/gpu_copy.hpp"
#include "kernels/arch/gpu_rows.hpp"
