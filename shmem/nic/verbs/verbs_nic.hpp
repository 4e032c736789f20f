// One port of a device as a NIC: its registered memory, its completion queues, its endpoints, and
// what the device tells of itself while it runs.
#pragma once

#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "shmem/base/settings.hpp"
#include "shmem/gpu/driver.hpp"
#include "shmem/nic/verbs/endpoint.hpp"
#include "shmem/nic/verbs/port.hpp"

namespace railshmem::nic::verbs {

// What this provider keeps in the addresses that PEs exchange.
struct NicLocation {
  char provider[8] = {'v', 'e', 'r', 'b', 's'};
  Gid gid{};
  uint16_t lid = 0;
  uint8_t ethernet = 0;
  char name[64] = {};  // for errors: "mlx5_0 (10.1.0.3)"
};
static_assert(sizeof(NicLocation) <= sizeof(NicAddress));

class VerbsNic final : public Nic {
 public:
  VerbsNic(std::shared_ptr<const Library> library, OpenPort open, const VerbsSettings& settings,
           const std::optional<gpu::Site>& site);

  const std::string& name() const override { return port_.name; }
  std::string network() const override { return port_.network(); }
  uint32_t distance() const override { return distance_; }
  const Capabilities& capabilities() const override { return capabilities_; }
  NicAddress address() const override;
  MemoryKey register_memory(void* address, std::size_t bytes, uint32_t access,
                            const SegmentHandle* shared) override;
  void deregister_memory(const MemoryKey& key) override;
  std::unique_ptr<Endpoint> create_endpoint(uint32_t depth, uint32_t receive_depth) override;
  bool progress() override;
  std::size_t poll(Completion* out, std::size_t room) override;

  // For endpoints.
  const std::shared_ptr<const Library>& library() const { return library_; }
  const VerbsSettings& settings() const { return settings_; }
  const DeviceAttributes& attributes() const { return attributes_; }
  const Port& port() const { return port_; }
  ProtectionDomain* domain() const { return domain_.get(); }
  std::string text() const;
  // A completion queue that has room for so many more; and the end of that.
  SharedQueue& reserve(uint32_t entries);
  void forget(VerbsEndpoint& endpoint);
  void list_completions(VerbsEndpoint& endpoint);
  void hear();  // what the device tells of itself

 private:
  OwnedRegion make_region(void* address, std::size_t bytes, int flags) const;
  OwnedRegion make_gpu_region(void* address, std::size_t bytes, int flags) const;
  bool can_reach_gpu() const;
  uint32_t take_slot();
  void look(SharedQueue& queue);
  void heed(const Event& event);

  // Destroyed last to first.
  const std::shared_ptr<const Library> library_;
  const VerbsSettings settings_;
  const std::optional<gpu::Site> site_;
  const OwnedContext context_;
  const DeviceAttributes attributes_;
  const Port port_;
  const OwnedDomain domain_;
  const uint32_t distance_;
  Capabilities capabilities_;

  std::mutex mutex_;  // of regions_: users register while the progress thread works
  std::unordered_map<uint32_t, OwnedRegion> regions_;  // by lkey

  std::list<SharedQueue> queues_;
  std::vector<VerbsEndpoint*> endpoints_;  // by id; null: free
  std::deque<VerbsEndpoint*> completed_;   // that may have completions
  uint32_t rounds_ = 0;
};

}  // namespace railshmem::nic::verbs
