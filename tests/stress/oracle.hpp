// What the memory of every PE must hold: one thread that does the plan, one PE after another.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/stress/plan.hpp"

namespace railshmem::stress {

class Oracle {
 public:
  explicit Oracle(int n_pes);

  // Every PE's operations of the round, then its collective. `results` [pe][operation] is what each
  // fetched: the old value of an atomic, a checksum of the bytes of a get.
  void play(const Round& round, bool with_atomics);

  const std::vector<unsigned char>& memory(int pe) const {
    return memory_[static_cast<std::size_t>(pe)];
  }
  uint64_t result(int pe, std::size_t operation) const {
    return results_[static_cast<std::size_t>(pe)][operation];
  }

 private:
  void play_operation(const Operation& operation, uint64_t& result);
  void play_collective(const Round& round);
  unsigned char* at(int pe, std::size_t offset) {
    return memory_[static_cast<std::size_t>(pe)].data() + offset;
  }

  Layout layout_;
  std::vector<std::vector<unsigned char>> memory_;
  std::vector<std::vector<uint64_t>> results_;
};

uint64_t checksum(const unsigned char* data, std::size_t bytes);

// What PE `pe` puts into the source of a collective, byte `index`.
inline unsigned char source_byte(uint64_t seed, int pe, std::size_t index) {
  return byte_of(seed * 31 + static_cast<uint64_t>(pe) * 977, index);
}

// Elements that member `member` gives to a collect.
inline std::size_t collected(const Round& round, int member) {
  return round.elements / static_cast<std::size_t>(1 + (member + round.root) % 3);
}

bool is_atomic(Kind kind);

}  // namespace railshmem::stress
