// Atomics that cannot be done by load and store: executed in one place per target heap. Where every
// NIC has native atomics that place is the target's NIC of its home rail (FETCH_AND_ADD,
// COMPARE_AND_SWAP and loops of the latter); otherwise, and for 4-byte words, it is the target's
// progress thread, asked by message and answering by message; where the word is in a GPU's memory,
// that thread asks the GPU.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/shmem/atomic.hpp"
#include "shmem/memory/key_table.hpp"
#include "shmem/nic/moves/queue.hpp"
#include "shmem/transport/proxy/connections.hpp"

namespace railshmem::proxy {

struct AtomicTask {
  uint32_t lane = 0;
  int pe = 0;
  uint64_t sequence = 0;  // of its command on the lane
  device::AtomicOp op = device::AtomicOp::fetch;
  uint32_t width = 8;
  uint64_t target = 0;  // offset in the peer's heap
  uint64_t operand = 0;
  uint64_t compare = 0;
  uint32_t slot = 0;  // result slot + 1; 0: nobody waits for the value
};

class Atomics final : private nic::MoveQueue::Owner {
 public:
  static constexpr uint32_t kTasks = 256;    // in flight at once
  static constexpr uint32_t kAnswers = 128;  // to peers, that wait for a GPU

  // Heap bytes for the results of native atomics, and of those that a GPU does for peers.
  static constexpr uint64_t scratch_area() { return (kTasks + kAnswers) * sizeof(uint64_t); }

  // Told how an atomic ended: the old value, or the error, after which it may or may not have been
  // executed; or that it never left.
  class Client {
   public:
    virtual ~Client() = default;
    virtual void atomic_done(const AtomicTask& task, uint64_t old_value, nic::Status status) = 0;
    virtual void atomic_not_sent(const AtomicTask& task) = 0;
  };

  Atomics(Connections& connections, const KeyTable& keys, char* heap, uint64_t heap_bytes,
          uint64_t scratch_offset, bool native, nic::MoveQueue* moves, Client& client);
  ~Atomics() override;

  // False, and nothing done, while kTasks are in flight.
  bool start(const AtomicTask& task);

  // A native step of atomic `index` completed on its channel.
  void step_completed(uint32_t index, nic::Status status);
  // The channel is in error: requests that wait for its credits will never go, and no answer will
  // come to those that went.
  void channel_failed(Channel& channel);

  // A message arrived: a request of the channel's peer, or the answer to one of ours.
  void message_received(Channel& channel, const nic::Completion& completion);
  // Hands what peers asked for to the GPU, as far as there is room; true when something went.
  bool pump_answers();

  uint64_t credit_waits() const { return credit_waits_.get(); }
  uint64_t retries() const { return retries_.get(); }

 private:
  // What a request carries; its number travels as the immediate and comes back with the answer.
  struct Request {
    uint64_t target;
    uint64_t operand;
    uint64_t compare;
    uint8_t op;
    uint8_t width;
  };
  struct Record {
    AtomicTask task;
    uint64_t expected = 0;  // what the compare-and-swap in flight expects
    bool swapping = false;  // the step in flight is a compare-and-swap
    bool asked = false;     // the request left, the answer has not come
  };

  bool is_native(const AtomicTask& task) const { return native_ && task.width == 8; }
  void post_step(uint32_t index, nic::Opcode op, uint64_t operand, uint64_t compare);
  void send_request(uint32_t index);
  struct Asked {
    Channel* channel;
    uint32_t imm;
    Request body;
  };
  void answer(Channel& channel, const nic::Completion& completion, const char* request);
  void reply(const Asked& asked, uint64_t value, bool refused);
  void moved(uint64_t index, bool well) override;
  void end(uint32_t index, uint64_t old_value, nic::Status status);
  AtomicTask free(uint32_t index);

  Connections& connections_;
  const KeyTable& keys_;
  char* heap_;
  uint64_t heap_bytes_;
  uint64_t* scratch_;
  bool native_;
  nic::MoveQueue* moves_;
  Client& client_;
  std::vector<Record> records_;
  std::vector<uint32_t> free_;
  std::deque<Asked> asked_;     // for a GPU's memory, and not handed to it
  std::vector<Asked> answers_;  // of those that were: [kAnswers]
  std::vector<uint32_t> free_answers_;
  Counter credit_waits_;
  Counter retries_;
};

}  // namespace railshmem::proxy
