// Rows by NVIDIA's bulk copies (from compute capability 9.0 on): one lane moves a piece of a row to
// shared memory and from there to all its places, and the others have nothing to do.
#pragma once

namespace railshmem::arch {

namespace detail {

RSH_DEVICE uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
RSH_DEVICE uint32_t launched_shared_bytes() {
  uint32_t bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

#if __CUDA_ARCH__ >= 900
// A barrier in shared memory at which one thread waits for bytes to come.
RSH_DEVICE void make_barrier(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
RSH_DEVICE void load_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}
RSH_DEVICE void wait_bulk(uint32_t barrier, uint32_t parity) {
  uint32_t came;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(came)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (came == 0);
}
RSH_DEVICE void store_bulk(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(from), "r"(bytes)
               : "memory");
}
#endif

}  // namespace detail

// Every thread of the block makes one, before anything else that uses shared memory of the launch.
class RowMover {
 public:
  RSH_DEVICE RowMover() {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char launched_shared[];
    const uint32_t warps = size<Scope::block>() / size<Scope::warp>();
    const uint32_t warp = rank<Scope::block>() / size<Scope::warp>();
    const uint32_t all = detail::launched_shared_bytes();
    const uint32_t barriers = (warps * 8 + 127) / 128 * 128;
    if (all <= barriers) return;
    piece_ = (all - barriers) / warps / 128 * 128;
    const uint32_t begin = detail::shared_address(launched_shared);
    barrier_ = begin + warp * 8;
    place_ = begin + barriers + warp * piece_;
    if (leader<Scope::warp>() && piece_ > 0) detail::make_barrier(barrier_);
    sync<Scope::warp>();
#endif
  }

  // copy_to_each of bytes that are multiples of 16; the warp comes.
  RSH_DEVICE void copy_to_each(const WarpList& rows, const void* from, uint64_t first,
                               uint64_t last) {
#if __CUDA_ARCH__ >= 900
    if (piece_ > 0) return move(rows, static_cast<const char*>(from), first, last);
#endif
    arch::copy_to_each(rows, from, first, last);
  }

  // Everything that was moved is as if this thread had stored it.
  RSH_DEVICE void finish() {
#if __CUDA_ARCH__ >= 900
    if (piece_ > 0 && leader<Scope::warp>())
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    sync<Scope::warp>();
#endif
  }

 private:
#if __CUDA_ARCH__ >= 900
  RSH_DEVICE void move(const WarpList& rows, const char* from, uint64_t first, uint64_t last) {
    if (rows.mask() == 0) return;
    const bool mover = leader<Scope::warp>();
    RSH_ROLLED
    for (uint64_t at = first; at < last; at += piece_) {
      const auto bytes = static_cast<uint32_t>(last - at < piece_ ? last - at : piece_);
      if (mover) {
        // The piece before has left its place.
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        // What this thread sees, the engine sees, too.
        asm volatile("fence.proxy.async.global;" ::: "memory");
        detail::load_bulk(place_, from + at, bytes, barrier_);
        detail::wait_bulk(barrier_, turn_ & 1);
      }
      ++turn_;
      RSH_ROLLED
      for (uint32_t left = rows.mask(); left != 0; left &= left - 1) {
        char* const to = reinterpret_cast<char*>(rows[lowest_one(left)]) + at;
        if (mover) detail::store_bulk(to, place_, bytes);
      }
      if (mover) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
#endif

  uint32_t piece_ = 0;  // bytes of this warp's place in shared memory; 0: it has none
  uint32_t place_ = 0;
  uint32_t barrier_ = 0;
  uint32_t turn_ = 0;
};

}  // namespace railshmem::arch
