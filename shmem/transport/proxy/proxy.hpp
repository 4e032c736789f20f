// The progress thread of one PE: takes commands that kernels wrote into rings, the host's and those
// of GPUs, drives the NICs, and publishes per lane how many commands are complete. In flight is
// bounded per lane in commands and in bytes, so a ring of any size works under any load.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/shmem/ring.hpp"
#include "shmem/base/settings.hpp"
#include "shmem/memory/key_table.hpp"
#include "shmem/memory/registered_buffers.hpp"
#include "shmem/nic/moves/queue.hpp"
#include "shmem/nic/nic.hpp"
#include "shmem/transport/proxy/atomics.hpp"
#include "shmem/transport/proxy/connections.hpp"
#include "shmem/transport/proxy/lane_state.hpp"
#include "shmem/transport/proxy/ring_memory.hpp"

namespace railshmem::proxy {

// What the proxy works on; everything outlives it.
struct ProxyParts {
  const Settings& settings;
  nic::Provider& provider;
  Connections& connections;
  const KeyTable& keys;
  const RegisteredBuffers& buffers;  // local memory besides the heap
  device::DeviceContext& context;    // the host's, which is joined with the first ring
  uint64_t scratch_offset;
  bool native_atomics;              // every NIC of the job has them
  bool ordered;                     // every NIC of the job places WRITEs in order
  uint32_t spins;                   // idle rounds before the thread yields its core
  nic::MoveQueue* moves = nullptr;  // where some memory is a GPU's; driven by the progress thread
};

class Proxy final : private Atomics::Client {
 public:
  explicit Proxy(const ProxyParts& parts);
  ~Proxy() override { stop(); }

  // Serves one more ring, of producers that cannot wake the progress thread: a GPU's kernels. Its
  // lanes share the queue pairs of the default context's. Before start().
  void attach(const ConsumerSide& ring);

  void start();
  void stop();

  // For threads of the host that wait: with it they do rounds of the progress thread's work, which
  // saves handing every request and every completion from thread to thread. Null where what the
  // progress thread drives is bound to it.
  const device::Driver* driver() const { return helpable_ ? &driver_ : nullptr; }

  // May be called at any time, from any thread.
  Statistics statistics() const;

 private:
  // The command being issued, which may wait for room half way.
  struct Current {
    device::Command command;
    LaneState* lane = nullptr;
    uint32_t lane_index = 0;
    uint64_t sequence = 0;
    uint64_t bytes_done = 0;
    uint64_t taken_ns = 0;  // where a timeline is written
    bool data_done = false;
    bool signals = false;  // a signal comes with it
    bool follows = false;  // right behind the data; decided once, whatever becomes of the lane
    bool active = false;
  };

  struct Source {
    ConsumerSide ring;
    std::size_t first_lane;  // its first one's index in lanes_
    uint32_t lane_number;    // of its first lane to each peer, in the statistics
    uint64_t taken = 0;      // commands read from the ring
    Current current = {};
  };

  // proxy.cpp: the thread
  void run();
  bool locked_step();
  bool step();
  bool help();
  void sleep();
  int64_t sleep_ns();
  bool take_commands();
  bool take_from_source();
  bool read_next();
  void record_issued() const;

  // issue.cpp: commands of one source to work requests. False: no room yet, call again.
  Current& current() const { return source_->current; }
  bool issue();
  bool begin();
  bool issue_data();
  bool issue_put();
  bool issue_immediate();
  bool issue_get();
  bool issue_atomic();
  bool issue_fence();
  bool issue_signal();
  bool transfer(nic::Opcode op, After last);
  bool signal_follows_data(const device::Command& command, const LaneState& lane) const;
  uint32_t local_key(uint64_t address, int rail) const;
  uint64_t local_run(uint64_t address) const;
  After after_data() const;
  nic::WorkRequest request_of(const LaneState& lane, const Posted& entry) const;
  void post(Posted entry);
  bool start_atomic(const AtomicTask& task);
  void complete_now();
  void fail_now();
  void refuse(nic::Status status);
  void refuse_dead();

  // complete.cpp: completions to finished commands
  bool poll();
  void completed(Channel& channel, const nic::Completion& completion);
  void received(Channel& channel, const nic::Completion& completion);
  void failed(Channel& channel, uint64_t index, const Posted& entry, nic::Status status);
  void conclude(const Posted& entry, nic::Status status);
  static void end_slot(const ConsumerSide& ring, uint32_t slot, uint64_t value, nic::Status status);
  void pump_signals(LaneState& lane, uint32_t lane_index);
  void drop_signal(LaneState& lane, uint64_t sequence);
  void atomic_done(const AtomicTask& task, uint64_t old_value, nic::Status status) override;
  void atomic_not_sent(const AtomicTask& task) override;
  void atomic_ended(const AtomicTask& task, uint64_t old_value, nic::Status status);

  // failover.cpp: queue pairs in error, and their work
  void channel_in_error(Channel& channel, nic::Status status);
  bool pump_failovers();
  bool fail_over(Channel& channel);
  void send_notice(Channel& about, Channel& over);
  void notice_received(Channel& over, const nic::Completion& completion);
  void notice_failed(Channel& about);
  void move_work(Channel& from, Channel& to);
  void repeat(const Posted& entry);
  void give_up(Channel& channel);
  void lose(Channel& channel, const Posted& entry);
  void stop_for(Channel& channel, const Posted& entry);
  void stop_with(device::Stop reason, const Channel& channel, const Posted& entry,
                 nic::Status status);

  const ProxyParts parts_;
  Atomics atomics_;
  const HostBlock consumer_block_;  // of the host's ring, as the next one
  const HostBlock producer_block_;
  std::deque<Source> sources_;                     // the host's is the first; they do not move
  Source* source_ = nullptr;                       // whose commands are being issued
  std::vector<std::unique_ptr<LaneState>> lanes_;  // of all sources: [n_pes * lanes] each
  std::vector<uint32_t> stalled_;                  // lanes whose signal waits for a free atomic
  std::vector<Channel*> failing_;
  uint32_t naps_ = 0;  // in a row
  const bool helpable_;
  const device::Driver driver_;
  std::mutex driving_;  // where others help: who does a round
  std::atomic<uint64_t> helped_{0};
  Counter failovers_;
  Counter stalls_;
  Counter polls_;
  Counter sleeps_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace railshmem::proxy
