// Another PE's NIC as an engine of this process sees it: its shared segment and its registered
// memory, mapped here. Used by all endpoints of one NIC, in the thread that drives them.
#pragma once

#include <memory>
#include <vector>

#include "shmem/nic/emulated/address.hpp"
#include "shmem/nic/emulated/layout.hpp"
#include "shmem/nic/emulated/regions.hpp"
#include "shmem/nic/moves/queue.hpp"

namespace railshmem::nic::emulated {

class Peer {
 public:
  // Maps the peer's segment and every region it has registered so far. Throws Error(init) saying
  // why one cannot be mapped. `site`: of this process's GPU, or null; outlives it, as `moves`
  // does, which learns of the peer's memory: null where no NIC's memory is a GPU's.
  Peer(const NicLocation& location, const gpu::Site* site, MoveQueue* moves);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();

  SharedNic& nic() const { return nic_in(*segment_, location_.nic); }
  uint32_t* sleep_word() const { return &header_in(*segment_).sleep_word; }
  const NicLocation& location() const { return location_; }
  // Its process ended while it drove its NICs.
  bool ended() const { return driver_died(header_in(*segment_)); }

  // Where [address, address + length) of the peer lies in this process, if the region of `key`
  // holds it and grants `rights`. The result is good until the current Visit ends.
  mlx5::Syndrome find(uint32_t key, uint64_t address, uint64_t length, uint32_t rights, char** at);

 private:
  struct Mapped {
    uint32_t key = 0;
    Region region;
    std::shared_ptr<Segment> segment;
  };
  // Throws as the constructor does; null where the key is not valid.
  const Mapped* map(uint32_t key);
  void forget(const Mapped& old);

  NicLocation location_;
  const gpu::Site* site_;
  MoveQueue* moves_;
  std::shared_ptr<Segment> segment_;
  std::vector<Mapped> mapped_;  // by the index in the peer's table
};

}  // namespace railshmem::nic::emulated
