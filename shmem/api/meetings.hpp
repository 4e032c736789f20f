// How the members of a team agree: they meet, compare what they were called with, and exchange
// small records. Everything collective is built from this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/shmem/order.hpp"
#include "shmem/api/team.hpp"

namespace railshmem {

// What a collective was called with, as a number: never kDisagreed, never kPlainBarrier.
uint64_t hash_of(const char* data, std::size_t bytes);

template <class... Numbers>
uint64_t hash_of_numbers(Numbers... numbers) {
  const uint64_t all[] = {static_cast<uint64_t>(numbers)...};
  return hash_of(reinterpret_cast<const char*>(all), sizeof all);
}

class Meetings {
 public:
  // `raise_stopped` throws why a wait of this PE ended early.
  Meetings(const device::DeviceContext& context, std::function<void()> raise_stopped)
      : context_(context), raise_stopped_(std::move(raise_stopped)) {}

  // Collective: returns when every member has called it.
  void sync(Team& team);

  // Collective: throws Error(argument) on every member, telling who called what, where the members'
  // hashes differ.
  void agree(Team& team, uint64_t hash, const std::function<std::string()>& call);

  // Collective, teams of up to kExchangePes: each gives up to kExchangeBytes (`bytes` may differ),
  // and `take` is called for every member's, in their order.
  using Take = std::function<void(int member, const char* data, std::size_t bytes)>;
  void exchange(Team& team, const void* data, std::size_t bytes, const Take& take);

  // Collective, teams of any size: `record` becomes what `combine(record, other)` makes of all
  // members' records, whatever their order and also where one is combined twice (maximum, union).
  using Combine = std::function<void(const char* other)>;
  void merge(Team& team, void* record, std::size_t bytes, const Combine& combine);

  const device::DeviceContext& context() const { return context_; }
  void raise_if(bool stopped) const {
    if (stopped) raise_stopped_();
  }

 private:
  [[noreturn]] void refuse(Team& team, const std::string& mine);
  void require_usable(const Team& team) const;
  ExchangeSlot* slots(const Team& team, uint64_t area) const;
  void send(const Team& team, const ExchangeSlot* from, ExchangeSlot* slot, int to);
  void receive(const Team& team, const ExchangeSlot* slot, int from);

  const device::DeviceContext& context_;
  std::function<void()> raise_stopped_;
};

}  // namespace railshmem
