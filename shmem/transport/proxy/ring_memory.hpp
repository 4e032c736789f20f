// The memory through which producers and the progress thread talk: a ring of commands, the lanes of
// one context and result slots. It is two blocks: what producers change by read-modify-write, and
// what the progress thread reads and writes. Both are the host's heap memory where the host's
// threads produce; where a GPU's kernels do, the first lies in its memory and the second is host
// memory that the GPU reaches at the same address.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/shmem/context.hpp"

namespace railshmem::proxy {

// Zeros, aligned to cache lines: either block of the host.
class HostBlock {
 public:
  explicit HostBlock(uint64_t bytes);
  char* data() const { return data_.get(); }

 private:
  struct Release {
    void operator()(char* data) const;
  };
  std::unique_ptr<char, Release> data_;
};

struct RingShape {
  uint32_t commands = 0;  // that the ring holds: a power of two
  int n_pes = 0;
  uint32_t lanes = 0;  // to each peer
  uint32_t results = 1024;

  std::size_t all_lanes() const { return static_cast<std::size_t>(n_pes) * lanes; }
};

// The progress thread's side: where everything lies in its block, which begins as zeros, is aligned
// to 64 bytes and outlives the Proxy.
struct ConsumerSide {
  static uint64_t bytes(const RingShape& shape);
  ConsumerSide(const RingShape& shape, char* block);

  // Each is written by one side only: a cache line each.
  struct Words {
    alignas(64) uint64_t head;  // commands taken; by the progress thread
    alignas(64) uint32_t dead;  // by producers, as the next one
    uint64_t full_waits;
  };

  RingShape shape;
  uint32_t shift;  // log2 of shape.commands
  Words* words;
  device::LaneProgress* progress;  // [n_pes * lanes]
  device::CommandSlot* slots;      // [commands]
  device::ResultSlot* results;
};

// The producers' side: a block, aligned to 64 bytes, that they see at `address`.
class ProducerSide {
 public:
  static uint64_t bytes(const RingShape& shape);
  // `sleep_word`: the progress thread's; null: these producers cannot wake it.
  ProducerSide(const ConsumerSide& consumer, uint64_t address, uint32_t* sleep_word);

  // What the block holds at first: to be copied there before anything is posted.
  const std::vector<char>& image() const { return image_; }

  // Lets a context, whose own lanes are `n_lanes` of these to each peer, post here.
  void join(device::DeviceContext& context) const;

 private:
  const ConsumerSide consumer_;
  const uint64_t address_;
  std::vector<char> image_;
};

}  // namespace railshmem::proxy
