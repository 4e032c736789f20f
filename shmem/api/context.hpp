// One independent stream of order: what a context posts is ordered and completed by its own fence
// and quiet (OpenSHMEM 1.5, section 9.5). Every one-sided operation is a method here. PEs are
// numbered as in the context's team; addresses on the PE's side are symmetric; sizes are in bytes.
//
// Any thread may use a context. Every operation checks its arguments before anything moves
// (Error(argument)) and throws what ended a wait: Error(timeout), Error(network), Error(peer_lost),
// Error(aborted).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/shmem/order.hpp"
#include "shmem/api/runtime.hpp"
#include "shmem/api/team.hpp"

namespace railshmem {

class Context {
 public:
  Context(Runtime::Parts& parts, device::Lanes lanes, std::shared_ptr<Team> team);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() = default;

  const std::shared_ptr<Team>& team() const { return team_; }
  device::Lanes lanes() const { return lanes_; }
  const Runtime::Parts& parts() const { return parts_; }
  // True when `pe` exists and this thread reaches it by load and store.
  bool maps(int pe) const;
  // Atomics take a trip to another thread.
  bool atomics_wait() const;

  // ---- puts and gets ----

  // Returns when `source` may be reused.
  void put(void* dest, const void* source, std::size_t bytes, int pe);
  // Returns at once; `source`, where it is registered memory, must stay as it is until quiet().
  void put_nbi(void* dest, const void* source, std::size_t bytes, int pe);
  // Returns when the data is in `dest`.
  void get(void* dest, const void* source, std::size_t bytes, int pe);
  // `dest` holds the data after quiet().
  void get_nbi(void* dest, const void* source, std::size_t bytes, int pe);
  // Elements `dst` and `sst` elements apart, of 1, 2, 4, 8 or 16 bytes.
  void iput(void* dest, const void* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
            std::size_t nelems, std::size_t element_bytes, int pe);
  void iget(void* dest, const void* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
            std::size_t nelems, std::size_t element_bytes, int pe);

  // put, then the signal: whoever sees the signal sees the data. op: set or add.
  void put_signal(void* dest, const void* source, std::size_t bytes, uint64_t* signal,
                  uint64_t value, device::AtomicOp op, int pe);
  void put_signal_nbi(void* dest, const void* source, std::size_t bytes, uint64_t* signal,
                      uint64_t value, device::AtomicOp op, int pe);

  // ---- atomics; `width` 4 or 8 ----

  // Returns the old value (of operations that have one).
  uint64_t atomic_fetch(device::AtomicOp op, void* word, unsigned width, uint64_t operand,
                        uint64_t compare, int pe);
  // The old value is in `*fetch` after quiet(), which must be valid until then.
  void atomic_fetch_nbi(device::AtomicOp op, void* fetch, void* word, unsigned width,
                        uint64_t operand, uint64_t compare, int pe, std::shared_ptr<void> owner);
  void atomic_update(device::AtomicOp op, void* word, unsigned width, uint64_t operand, int pe);

  // ---- order ----

  void fence();
  void quiet();

 private:
  enum class Reuse { at_once, after_quiet };  // of a put's source
  struct PendingFetch {
    uint32_t slot;
    int pe;
    void* fetch;
    unsigned width;
    std::shared_ptr<void> owner;  // keeps `fetch` alive
  };

  // The number of `pe` in the job, once the call's arguments are found right.
  int check(const char* call, const char* what, const void* address, std::size_t bytes,
            int pe) const {
    const uint64_t at = reinterpret_cast<uint64_t>(address) - heap_begin_;
    const bool right = !*finalized_ && at <= heap_bytes_ && bytes <= heap_bytes_ - at &&
                       static_cast<uint32_t>(pe) < static_cast<uint32_t>(n_pes_);
    return right ? pes_[pe] : refuse(call, what, address, bytes, pe);
  }
  [[gnu::cold, gnu::noinline]] int refuse(const char* call, const char* what, const void* address,
                                          std::size_t bytes, int pe) const;
  void check_word(const char* call, const char* what, const void* word, unsigned width) const;
  void check_signal(const char* call, const uint64_t* signal, device::AtomicOp op) const;
  bool reaches(int pe) const;  // by load and store
  void put_checked(void* dest, const void* source, std::size_t bytes, const device::Signal& signal,
                   int pe, Reuse reuse);
  bool put_mapped(void* dest, const void* source, std::size_t bytes, const device::Signal& signal,
                  int pe);
  bool put_by_nic(char* dest, const char* source, std::size_t bytes, const device::Signal& signal,
                  int pe, Reuse reuse);
  void copy_from(void* dest, const void* source, std::size_t bytes, int pe);  // a mapped GPU
  bool get_by_nic(char* dest, const char* source, std::size_t bytes, int pe);
  uint64_t atomic_by_gpu(device::AtomicOp op, void* word, unsigned width, uint64_t operand,
                         uint64_t compare, int pe);
  uint64_t fetch_checked(device::AtomicOp op, void* word, unsigned width, uint64_t operand,
                         uint64_t compare, int pe);
  void update_checked(device::AtomicOp op, void* word, unsigned width, uint64_t operand, int pe);
  void collect(std::size_t keep);

  Runtime::Parts& parts_;
  const device::Lanes lanes_;
  const std::shared_ptr<Team> team_;
  friend void Runtime::destroy_context(Context& context);
  bool destroyed_ = false;  // its lane may be another context's by now
  // What every operation looks at.
  const device::DeviceContext* const ctx_;
  const bool* const finalized_;
  const bool in_host_memory_;  // the heap: a put to a mapped peer is a copy by this thread
  const uint64_t heap_begin_;
  const uint64_t heap_bytes_;
  const int* const pes_;
  const int n_pes_;
  std::mutex fetch_mutex_;
  std::vector<PendingFetch> fetches_;
  std::atomic<std::size_t> n_fetches_{0};
};

}  // namespace railshmem
