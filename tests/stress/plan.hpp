// What every PE does in one round, drawn from a seed: the same plan on every PE and for the oracle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/shmem/command.hpp"
#include "shmem/api/reduction.hpp"

namespace railshmem::stress {

// The memory that operations touch, the same on every PE: per initiator a slab of bytes that only
// it writes on any PE, one of words for its atomics, and counters that all PEs add to.
constexpr std::size_t kSlab = 24 * 1024;
constexpr std::size_t kWords = 16;
constexpr std::size_t kCounters = 4;

struct Layout {
  int n_pes;
  std::size_t slab(int initiator) const { return static_cast<std::size_t>(initiator) * kSlab; }
  std::size_t words(int initiator) const {
    return static_cast<std::size_t>(n_pes) * kSlab +
           static_cast<std::size_t>(initiator) * kWords * 8;
  }
  std::size_t counters() const { return words(n_pes); }
  // What collectives read and write.
  std::size_t source() const { return counters() + kCounters * 8; }
  std::size_t dest() const { return source() + kSlab; }
  std::size_t bytes() const { return dest() + static_cast<std::size_t>(n_pes) * kSlab; }
};

enum class Kind : uint8_t {
  put,
  put_nbi,
  get,
  get_nbi,
  iput,
  iget,
  put_signal,
  atomic,
  atomic_nbi,
  count,  // adds to a counter of all
  fence,
  quiet,
};

// One operation of one PE.
struct Operation {
  Kind kind;
  int pe;
  int context;        // 0: the default one
  std::size_t at;     // offset: of bytes in the slab, of a word, of a counter
  std::size_t bytes;  // or elements of strided operations
  std::size_t element, dst, sst;
  device::AtomicOp op;
  unsigned width;
  uint64_t value;  // operand; also what fills the bytes of a put
  uint64_t compare;
};

enum class Collective : uint8_t { none, broadcast, fcollect, collect, alltoall, reduce };

struct Team {
  int start, stride, size;
};

struct Round {
  uint64_t seed;
  std::vector<std::vector<Operation>> operations;  // by PE
  Collective collective;
  Team team;
  int root;
  std::size_t elements;
  ElementType type;
  ReduceOp op;
  uint64_t nap_us;  // that one PE is late
  int late;
};

// What a job is like; its rounds share it.
struct Job {
  int n_pes;
  std::vector<std::pair<std::string, std::string>> settings;
  std::string describe() const;
};

Job draw_job(uint64_t seed);
Round draw_round(uint64_t seed, int n_pes);

// Byte `index` of what an operation with this value puts.
inline unsigned char byte_of(uint64_t value, std::size_t index) {
  return static_cast<unsigned char>((value >> index % 8 * 8) + index * 7);
}

constexpr int kContexts = 3;

}  // namespace railshmem::stress
