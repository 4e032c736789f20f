// One NIC: a domain, one reliable-datagram endpoint of libfabric's, and the connections over it.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "shmem/nic/libfabric/discovery.hpp"
#include "shmem/nic/libfabric/endpoint.hpp"
#include "shmem/nic/libfabric/interfaces.hpp"
#include "shmem/nic/libfabric/regions.hpp"

namespace railshmem::nic::libfabric {

class LibfabricNic final : public Nic {
 public:
  explicit LibfabricNic(Found found);
  ~LibfabricNic() override;

  const std::string& name() const override { return found_.name; }
  std::string network() const override { return found_.network; }
  const Capabilities& capabilities() const override { return capabilities_; }
  NicAddress address() const override { return address_; }
  MemoryKey register_memory(void* address, std::size_t bytes, uint32_t access,
                            const SegmentHandle* shared) override;
  void deregister_memory(const MemoryKey& key) override;
  std::unique_ptr<Endpoint> create_endpoint(uint32_t depth, uint32_t receive_depth) override;
  bool progress() override;
  std::size_t poll(Completion* out, std::size_t room) override;

  // What becomes readable when there is news; -1: nothing does, because the NIC cannot say so
  // (`*possible` is false then) or is down. False: there is news already.
  bool arm(int* descriptor, bool* possible);

  // For its endpoints.
  // libfabric is entered by one thread at a time: users register memory while the driver works.
  std::unique_lock<std::mutex> lock() { return std::unique_lock<std::mutex>(mutex_); }
  bool needs_descriptors() const;  // also of what travels inside an entry
  abi::Address reach(const NicAddress& peer);
  void serve(LibfabricEndpoint& endpoint);
  void check_receive(uint32_t endpoint, uint64_t address, uint32_t lkey, uint32_t bytes);
  void list_completions(LibfabricEndpoint& endpoint);
  void forget(LibfabricEndpoint& endpoint, std::unique_ptr<Operations> operations,
              const MemoryKey& inline_key);
  // Under the lock.
  const Regions& regions() const { return *regions_; }
  abi::Ep& endpoint() { return *ep_; }
  void cancel(Operation& operation);

 private:
  // Its operations may still be in libfabric's hands.
  struct Retired {
    std::unique_ptr<Operations> operations;
    MemoryKey inline_key;
  };

  void open_queue(const std::string& who);
  void list_work(LibfabricEndpoint& endpoint);
  bool read_completions();
  void read_error();
  void completed(Operation& operation, Status status, std::size_t bytes, uint32_t imm);
  bool serve_all();
  void free_retired();
  bool is_down();
  void go_down();

  Found found_;
  Capabilities capabilities_;
  NicAddress address_;
  std::mutex mutex_;
  Handle<abi::Fabric> fabric_;
  Handle<abi::Domain> domain_;
  Handle<abi::Av> av_;
  Handle<abi::Cq> cq_;
  int wait_descriptor_ = -1;  // the queue's
  std::vector<Retired> retired_;
  std::optional<Regions> regions_;
  Handle<abi::Ep> ep_;  // null: the NIC is down
  std::map<std::string, abi::Address> peers_;
  std::optional<InterfaceWatch> watch_;
  std::chrono::steady_clock::time_point looked_{};
  std::vector<LibfabricEndpoint*> endpoints_;  // by id; null: gone
  std::deque<LibfabricEndpoint*> ready_;       // with completions
  std::deque<LibfabricEndpoint*> working_;     // with something left to hand over
  std::deque<Completion> arrivals_;
};

}  // namespace railshmem::nic::libfabric
