// Executes the entries of one queue pair: reads them from the queue's memory, checks what a NIC
// checks, moves the data and writes completions, in the order of the entries.
#pragma once

#include <optional>
#include <vector>

#include "shmem/base/settings.hpp"
#include "shmem/nic/emulated/connection.hpp"
#include "shmem/nic/emulated/decoder.hpp"
#include "shmem/nic/emulated/queue_pair.hpp"
#include "shmem/nic/emulated/reordering.hpp"

namespace railshmem::nic::emulated {

class Engine {
 public:
  Engine(QueuePair& pair, const SharedNic& own, const EmulatedSettings& settings);

  void connect(Connection connection) { connection_.emplace(std::move(connection)); }
  const std::optional<Connection>& connection() const { return connection_; }

  // Takes every entry that the doorbell record announces; true when there was one.
  bool run();
  // Places some of the fragments held back; true when there was one.
  bool drain();

 private:
  struct Outstanding {
    Request request;
    mlx5::Syndrome syndrome;
    uint32_t fragments;  // not placed yet
  };

  Outstanding& outstanding(uint64_t index) { return outstanding_[index & pair_.mask()]; }
  void take();
  void retire();
  void fail();
  mlx5::Syndrome perform(Outstanding& request);
  void scatter(Outstanding& request);
  void place_one();

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
  std::optional<Reordering> reordering_;  // empty: ordered
  std::optional<Connection> connection_;
  std::vector<Outstanding> outstanding_;
  uint64_t taken_ = 0;    // entries taken from the queue
  uint64_t retired_ = 0;  // of those, answered
  bool failed_ = false;
};

}  // namespace railshmem::nic::emulated
