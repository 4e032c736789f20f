// Executes the entries of one queue pair: reads them from the queue's memory, checks what a NIC
// checks, moves the data and writes completions, in the order of the entries. What lies in a GPU's
// memory is handed to a queue of moves, and its entry is complete when that has ended.
#pragma once

#include <optional>
#include <vector>

#include "shmem/base/settings.hpp"
#include "shmem/nic/emulated/connection.hpp"
#include "shmem/nic/emulated/decoder.hpp"
#include "shmem/nic/emulated/faults.hpp"
#include "shmem/nic/emulated/queue_pair.hpp"
#include "shmem/nic/emulated/reordering.hpp"
#include "shmem/nic/moves/queue.hpp"

namespace railshmem::nic::emulated {

class Engine final : private MoveQueue::Owner {
 public:
  // `faults`: of the NIC; null: none. `moves`: null where all memory is the host's.
  Engine(QueuePair& pair, const SharedNic& own, const EmulatedSettings& settings, Faults* faults,
         MoveQueue* moves);
  ~Engine() override;

  void connect(Connection connection) { connection_.emplace(std::move(connection)); }
  const std::optional<Connection>& connection() const { return connection_; }

  // Takes entries that the doorbell record announces, places fragments, answers; true when
  // something moved.
  bool advance();
  // There is more to do without another doorbell.
  bool busy() const { return taken_ != announced_ || retired_ != taken_; }

  // The cable was pulled: what is not answered yet fails, and the peer is not let in any more.
  void cut();
  // Endpoint::shut.
  bool shut();

 private:
  struct Outstanding {
    Request request;
    mlx5::Syndrome syndrome;
    uint32_t fragments;  // not placed yet
    uint32_t moving;     // moves under way
    bool executed;       // with success, but for the fragments
    bool lost;
    uint64_t answered_at;
  };

  Outstanding& outstanding(uint64_t index) { return outstanding_[index & pair_.mask()]; }
  bool may_take();
  bool take();
  bool retire();
  void fail();
  // Nothing: not now, call again.
  using Outcome = std::optional<mlx5::Syndrome>;
  Outcome perform(Outstanding& request);
  void scatter(Outstanding& request);
  bool place_one();
  void count_executed(uint64_t end);
  void moved(uint64_t index, bool well) override;
  void leave();

  // Operations, in operations.cpp; called inside a visit to the peer. `index`: of the request.
  Outcome execute(const Request& request, uint64_t index);
  const void* source_of(const Request& request) const;
  Outcome write(const Request& request, uint64_t index, uint32_t offset, uint32_t bytes);
  Outcome write_imm(const Request& request, uint64_t index);
  Outcome read(const Request& request, uint64_t index);
  Outcome send(const Request& request);
  Outcome atomic(const Request& request, uint64_t index);
  bool on_device(const void* at) const { return moves_ != nullptr && moves_->on_device(at); }
  // Ordered after moves that are under way, what the CPU does must wait for them.
  bool must_wait() const { return moving_ != 0 && !reordering_; }
  Outcome count_move(uint64_t index, bool added);

  QueuePair& pair_;
  const SharedNic& own_;
  const bool atomics_;
  Faults* const faults_;
  std::optional<Fate> fate_;              // of the next entry, drawn and waiting for its time
  std::optional<Reordering> reordering_;  // empty: ordered
  std::optional<Connection> connection_;
  std::vector<Outstanding> outstanding_;
  MoveQueue* const moves_;
  uint32_t moving_ = 0;                    // moves under way
  std::optional<Connection::Visit> stay_;  // as long as there are any
  uint32_t stayed_ = 0;                    // requests executed in it
  uint64_t announced_ = 0;                 // entries that the record counted when last looked at
  uint64_t taken_ = 0;                     // of those, taken from the queue
  uint64_t executed_ = 0;                  // of those, the prefix that was executed with success
  uint64_t retired_ = 0;                   // of those taken, answered
  bool failed_ = false;
};

}  // namespace railshmem::nic::emulated
