// One connection over the NIC's endpoint: requests in order of posting, and what became of them.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "shmem/nic/libfabric/abi.hpp"
#include "shmem/nic/libfabric/operations.hpp"

namespace railshmem::nic::libfabric {

class LibfabricNic;

class LibfabricEndpoint final : public Endpoint {
 public:
  LibfabricEndpoint(LibfabricNic& nic, uint32_t id, uint32_t depth, uint32_t receive_depth);
  ~LibfabricEndpoint() override;

  uint32_t id() const override { return id_; }
  EndpointAddress address() const override;
  // The transport connects with the first request. A peer that is not there is found unreachable
  // by that, after kPatience at the latest.
  void connect(const NicAddress& peer_nic, const EndpointAddress& peer) override;
  bool post(const WorkRequest& request) override;
  void ring_doorbell() override;
  bool post_receive(uint64_t address, uint32_t lkey, uint32_t bytes) override;
  bool shut() override;
  uint64_t executed() const override { return 0; }
  uint64_t posted() const override { return posted_; }
  uint64_t completed() const override { return completed_; }

  // For the NIC, which holds its lock around what follows.
  // Hands over what libfabric takes; false while something is left.
  bool submit();
  void ended(Request& request, Status status);
  // A message came, or its buffer came back; false: nobody is to hear of it.
  bool received(Receive& receive, Status status, std::size_t bytes, uint32_t imm, Completion* out);
  // What has not ended never will: it ends now, and so does the endpoint.
  void abandon(Status status);
  bool poll(Completion* out);
  bool has_completions = false;  // in the NIC's lists of those with completions and of those with
  bool has_work = false;         // something left to hand over

 private:
  static constexpr std::chrono::seconds kPatience{10};

  void check(const WorkRequest& request) const;
  Request& request_at(uint64_t index) { return operations_->requests[index & mask_]; }
  int hand_over(Request& request);
  int hand_over(Receive& receive);
  bool submit_receives();
  bool waits_in_vain();
  void stop();
  void cancel_receives();

  LibfabricNic& nic_;
  const uint32_t id_;
  const uint64_t mask_;
  std::unique_ptr<Operations> operations_;
  MemoryKey inline_key_;  // lkey 0: the fabric needs none
  abi::Address peer_ = abi::kNoAddress;
  uint32_t peer_id_ = 0;
  bool connected_ = false;
  bool stopped_ = false;  // in error: nothing is handed over any more
  bool broken_ = false;   // an error was polled: what follows is flushed
  uint64_t posted_ = 0;
  uint64_t submitted_ = 0;  // of those, libfabric has or had, or never will have
  uint64_t completed_ = 0;
  uint64_t requests_in_flight_ = 0;
  uint64_t reads_in_flight_ = 0;                           // of those
  std::chrono::steady_clock::time_point refused_since_{};  // by libfabric, with nothing in flight
  uint64_t receives_posted_ = 0;
  std::vector<uint32_t> free_receives_;
  std::vector<uint32_t> waiting_receives_;  // in order, for libfabric to have room
};

}  // namespace railshmem::nic::libfabric
