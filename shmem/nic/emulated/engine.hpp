// Executes the entries of one queue pair: reads them from the queue's memory, checks what a NIC
// checks, moves the data and writes completions, in the order of the entries.
#pragma once

#include <optional>
#include <vector>

#include "shmem/base/settings.hpp"
#include "shmem/nic/emulated/connection.hpp"
#include "shmem/nic/emulated/decoder.hpp"
#include "shmem/nic/emulated/faults.hpp"
#include "shmem/nic/emulated/queue_pair.hpp"
#include "shmem/nic/emulated/reordering.hpp"

namespace railshmem::nic::emulated {

class Engine {
 public:
  // `faults`: of the NIC; null: none.
  Engine(QueuePair& pair, const SharedNic& own, const EmulatedSettings& settings, Faults* faults);

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
    bool executed;       // with success, but for the fragments
    bool lost;
    uint64_t answered_at;
  };

  Outstanding& outstanding(uint64_t index) { return outstanding_[index & pair_.mask()]; }
  bool may_take();
  void take();
  bool retire();
  void fail();
  mlx5::Syndrome perform(Outstanding& request);
  void scatter(Outstanding& request);
  void place_one();
  void count_executed(uint64_t end);

  // Operations, in operations.cpp; called inside a visit to the peer.
  mlx5::Syndrome execute(const Request& request);
  const void* source_of(const Request& request) const;
  mlx5::Syndrome write(const Request& request, uint32_t offset, uint32_t bytes);
  mlx5::Syndrome write_imm(const Request& request);
  mlx5::Syndrome read(const Request& request);
  mlx5::Syndrome send(const Request& request);
  mlx5::Syndrome atomic(const Request& request);

  QueuePair& pair_;
  const SharedNic& own_;
  const bool atomics_;
  Faults* const faults_;
  std::optional<Fate> fate_;              // of the next entry, drawn and waiting for its time
  std::optional<Reordering> reordering_;  // empty: ordered
  std::optional<Connection> connection_;
  std::vector<Outstanding> outstanding_;
  uint64_t announced_ = 0;  // entries that the record counted when last looked at
  uint64_t taken_ = 0;      // of those, taken from the queue
  uint64_t executed_ = 0;   // of those, the prefix that was executed with success
  uint64_t retired_ = 0;    // of those taken, answered
  bool failed_ = false;
};

}  // namespace railshmem::nic::emulated
