// One emulated NIC: its registered memory, its endpoints, and the round that serves them.
#pragma once

#include <deque>
#include <map>
#include <tuple>

#include "shmem/nic/emulated/endpoint.hpp"
#include "shmem/nic/emulated/layout.hpp"
#include "shmem/nic/emulated/peer.hpp"
#include "shmem/nic/emulated/regions.hpp"

namespace railshmem::nic::emulated {

class EmulatedNic final : public Nic {
 public:
  EmulatedNic(const NicLocation& location, SharedNic& shared, const EmulatedSettings& settings,
              const gpu::Site* site, MoveQueue* moves);
  ~EmulatedNic() override;

  const std::string& name() const override { return name_; }
  std::string network() const override;
  const Capabilities& capabilities() const override { return capabilities_; }
  NicAddress address() const override { return pack<NicAddress>(location_); }
  MemoryKey register_memory(void* address, std::size_t bytes, uint32_t access,
                            const SegmentHandle* shared) override;
  void deregister_memory(const MemoryKey& key) override;
  std::unique_ptr<Endpoint> create_endpoint(uint32_t depth, uint32_t receive_depth) override;
  bool progress() override;
  std::size_t poll(Completion* out, std::size_t room) override;

  // For endpoints.
  SharedNic& shared() { return shared_; }
  const EmulatedSettings& settings() const { return settings_; }
  Faults* faults() const { return faults_.get(); }  // null: none
  MoveQueue* moves() const { return moves_; }       // null: all memory is the host's
  const NicLocation& location() const { return location_; }
  // The peer, mapped; throws Error(init) with the reason where it cannot be reached.
  std::shared_ptr<Peer> reach(const NicAddress& address);
  void forget(EmulatedEndpoint& endpoint);
  void list_completions(EmulatedEndpoint& endpoint);

 private:
  void list_work(EmulatedEndpoint& endpoint);
  void cut();
  uint32_t take_slot();

  const NicLocation location_;
  const std::string name_;
  SharedNic& shared_;
  const EmulatedSettings settings_;
  const gpu::Site* const site_;  // null: the PE has no GPU
  MoveQueue* const moves_;
  Capabilities capabilities_;
  std::unique_ptr<Faults> faults_;
  bool cut_ = false;
  RegionTable regions_;

  // By slot. Doorbells lie side by side, so that looking whether one rang is quick.
  std::vector<uint64_t> doorbells_;
  std::vector<uint64_t> seen_;  // the doorbell words already served
  std::vector<EmulatedEndpoint*> endpoints_;
  std::vector<uint32_t> uses_;
  std::deque<uint32_t> free_slots_;

  std::vector<EmulatedEndpoint*> working_;   // endpoints with something to do, doorbell or not
  std::deque<EmulatedEndpoint*> completed_;  // endpoints that may have completions
  uint64_t polled_ = kReceiveCqEntries;      // of the receive completion queue; see open_nic
  uint32_t receive_entries_ = 0;             // receive buffers that all endpoints may have
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, std::shared_ptr<Peer>> peers_;
};

}  // namespace railshmem::nic::emulated
