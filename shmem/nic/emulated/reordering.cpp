#include "shmem/nic/emulated/reordering.hpp"

namespace railshmem::nic::emulated {

Reordering::Reordering(uint32_t seed, uint32_t qpn) {
  std::seed_seq both{seed, qpn};
  random_.seed(both);
  window_.reserve(kWindow);
}

Fragment Reordering::draw() {
  Fragment& chosen = window_[below(static_cast<uint32_t>(window_.size()))];
  const Fragment out = chosen;
  chosen = window_.back();
  window_.pop_back();
  return out;
}

uint32_t Reordering::piece(uint32_t left) {
  // Every second piece takes all that is left: two on average, whatever the length.
  return below(2) == 0 ? left : below(left) + 1;
}

}  // namespace railshmem::nic::emulated
