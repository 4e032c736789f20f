// What goes wrong on one emulated NIC, drawn from a seeded generator: see RAILSHMEM_FAULTS.
#pragma once

#include <cstdint>
#include <random>

#include "kernels/nic/mlx5.hpp"
#include "shmem/base/settings.hpp"

namespace railshmem::nic::emulated {

// What happens to one request beside what it asks for.
struct Fate {
  bool executed = true;
  bool lost = false;                           // its completion never comes
  mlx5::Syndrome answer = mlx5::Syndrome::ok;  // what a success is reported as
  uint64_t placed_at = 0;                      // not before; arch::clock_ns
  uint64_t answered_at = 0;                    // not before
};

class Faults {
 public:
  Faults(const EmulatedSettings& settings, int pe, uint32_t rail);

  // Of the NIC's next request.
  Fate draw(mlx5::Opcode op);

  // From then on nothing goes out of the NIC or comes in.
  bool rail_is_down();

  bool reorders() const { return settings_.reorder; }
  uint32_t below(std::size_t limit) { return static_cast<uint32_t>(random_() % limit); }

 private:
  bool happens(double share) { return std::uniform_real_distribution<>()(random_) < share; }
  bool is_the_one_that_fails(mlx5::Opcode op);

  const FaultSettings settings_;
  const bool rail_fails_;
  const uint64_t made_at_;
  std::mt19937 random_;
  uint64_t drawn_ = 0;
  uint64_t candidates_ = 0;  // requests of the operation that is to fail
  bool down_ = false;
};

}  // namespace railshmem::nic::emulated
