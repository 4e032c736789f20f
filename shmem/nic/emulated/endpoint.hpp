// One queue pair as its user sees it: turns requests into entries and completion entries into
// completions. It never looks into the engine.
#pragma once

#include "shmem/nic/emulated/address.hpp"
#include "shmem/nic/emulated/engine.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic::emulated {

class EmulatedNic;

class EmulatedEndpoint final : public Endpoint {
 public:
  // The NIC gives it the slot of `qpn` in its shared segment and a doorbell.
  EmulatedEndpoint(EmulatedNic& nic, uint32_t qpn, uint64_t* doorbell, uint32_t depth,
                   uint32_t receive_depth);
  ~EmulatedEndpoint() override;

  uint32_t id() const override { return pair_.qpn; }
  EndpointAddress address() const override;
  void connect(const NicAddress& peer_nic, const EndpointAddress& peer) override;
  bool post(const WorkRequest& request) override;
  void ring_doorbell() override;
  bool post_receive(uint64_t address, uint32_t lkey, uint32_t bytes) override;
  bool shut() override;
  uint64_t executed() const override { return arch::load_acquire(&pair_.slot.executed); }
  uint64_t posted() const override { return posted_; }
  uint64_t completed() const override { return completed_; }

  // For the NIC.
  Engine& engine() { return engine_; }
  const QueuePair& queue_pair() const { return pair_; }
  uint32_t receive_depth() const { return receive_depth_; }
  bool poll(Completion* out);                           // the next completed request
  void receive(const mlx5::Cqe& cqe, Completion* out);  // what an arrival means
  // In the NIC's lists of those with completions and of those with work.
  bool has_completions = false;
  bool has_work = false;

 private:
  void check(const WorkRequest& request) const;
  void encode(const WorkRequest& request);

  EmulatedNic& nic_;
  QueuePair pair_;
  Engine engine_;
  uint64_t* doorbell_;
  uint32_t receive_depth_;
  uint64_t token_;
  uint64_t posted_ = 0;
  uint64_t rung_ = 0;
  uint64_t completed_ = 0;
  uint64_t receives_posted_ = 0;
  uint64_t receives_completed_ = 0;
};

}  // namespace railshmem::nic::emulated
