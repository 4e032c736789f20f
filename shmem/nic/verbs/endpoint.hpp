// A reliable-connection queue pair. Of a batch only the last request, and those that bring
// something back, ask for a completion; one completion then tells of all requests before it.
#pragma once

#include <vector>

#include "shmem/nic/nic.hpp"
#include "shmem/nic/verbs/library.hpp"

namespace railshmem::nic::verbs {

class VerbsNic;

// A completion queue that endpoints share.
struct SharedQueue {
  OwnedQueue queue;
  uint32_t room = 0;     // entries that no endpoint has reserved
  uint64_t awaited = 0;  // requests and receive buffers that may still bring a completion
};

// Bytes that requests can carry. What a device cannot put inside its entries is copied to memory
// that it reads.
constexpr uint32_t kInlineBytes = 64;

class VerbsEndpoint final : public Endpoint {
 public:
  VerbsEndpoint(VerbsNic& nic, uint32_t id, uint32_t depth, uint32_t receive_depth);
  ~VerbsEndpoint() override;

  uint32_t id() const override { return id_; }
  EndpointAddress address() const override;
  void connect(const NicAddress& peer_nic, const EndpointAddress& peer) override;
  bool post(const WorkRequest& request) override;
  void ring_doorbell() override;
  bool post_receive(uint64_t address, uint32_t lkey, uint32_t bytes) override;
  bool shut() override;
  uint64_t executed() const override { return 0; }
  uint64_t posted() const override { return posted_; }
  uint64_t completed() const override { return completed_; }

  // For the NIC.
  const QueuePair* pair() const { return pair_.get(); }
  SharedQueue& queue() const { return queue_; }
  uint32_t reserved() const { return depth_ + receive_depth_; }
  uint64_t awaited() const { return handed_ - done_ + receives_handed_ - receives_seen_; }
  void take_in(const WorkCompletion& completion);
  bool yield(Completion* out);
  // Ends the queue pair for a reason that completions do not tell: `why` is the status of the first
  // request that did not complete.
  void end(Status why);
  // The same, where no completions come any more.
  void abandon(Status why);
  bool has_completions = false;  // in the NIC's list

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  void check(const WorkRequest& request) const;
  void encode(const WorkRequest& request);
  void modify(QueuePairAttributes& attributes, int mask, const char* state,
              const std::string& peer);
  void hand_receive(uint64_t address, uint32_t lkey, uint32_t bytes);
  void received(const WorkCompletion& completion);
  void advance(uint64_t done);
  void settle();
  Status status_of(WorkStatus status) const;

  struct EarlyReceive {
    uint64_t address;
    uint32_t lkey;
    uint32_t bytes;
  };

  VerbsNic& nic_;
  const uint32_t id_;
  const uint32_t depth_;
  const uint32_t receive_depth_;
  const uint32_t psn_;
  SharedQueue& queue_;
  // By index modulo depth. An entry stays as it is until it completes.
  std::vector<SendRequest> requests_;
  std::vector<ScatterGather> pieces_;
  std::vector<char> inlined_;
  OwnedRegion inlined_region_;  // where the device takes nothing inline
  OwnedPair pair_;
  uint32_t number_ = 0;
  bool connected_ = false;

  // completed_ <= done_ <= handed_ <= rung_ <= posted_
  uint64_t posted_ = 0;
  uint64_t rung_ = 0;
  uint64_t handed_ = 0;     // to the device
  uint64_t done_ = 0;       // their end is known
  uint64_t completed_ = 0;  // and polled
  uint64_t reads_ = 0;      // one past the last READ or atomic

  bool ended_ = false;
  Status why_ended_ = Status::flushed;
  uint64_t error_at_ = kNone;  // the first request that ended in error
  Status error_ = Status::ok;

  std::vector<EarlyReceive> early_;  // posted before the queue pair could take them
  uint64_t receives_posted_ = 0;
  uint64_t receives_handed_ = 0;
  uint64_t receives_seen_ = 0;
  std::vector<Completion> arrived_;  // by index modulo receive_depth
  uint64_t receives_arrived_ = 0;
  uint64_t receives_completed_ = 0;
};

}  // namespace railshmem::nic::verbs
