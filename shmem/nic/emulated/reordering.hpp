// The window of a network that does not keep order: pieces of WRITEs that were taken from the queue
// and not placed yet. They leave it in an order drawn from a seeded generator.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace railshmem::nic::emulated {

struct Fragment {
  uint64_t request;  // its index on the queue pair
  uint32_t offset;   // of this piece in the payload
  uint32_t bytes;
};

class Reordering {
 public:
  explicit Reordering(uint32_t seed, uint32_t qpn);

  bool empty() const { return window_.empty(); }
  bool full() const { return window_.size() == kWindow; }
  void add(const Fragment& fragment) { window_.push_back(fragment); }
  void clear() { window_.clear(); }

  Fragment draw();                // removes one, any one
  uint32_t piece(uint32_t left);  // how much of `left` > 0 bytes goes into the next piece
  uint32_t burst() { return below(4) + 1; }  // how many to place before looking at new work

 private:
  static constexpr std::size_t kWindow = 32;
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  std::mt19937 random_;
  std::vector<Fragment> window_;
};

}  // namespace railshmem::nic::emulated
