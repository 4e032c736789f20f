// Two PEs in one process, each with emulated NICs and a registered heap, joined by one queue pair.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "shmem/nic/emulated/emulated.hpp"

namespace railshmem::nic {

struct Side {
  Side(int pe, const EmulatedSettings& settings, uint32_t rails = 1, MoveQueue* moves = nullptr)
      : heap(HostSegment::create("test heap", kHeapBytes)),
        provider(make_emulated_provider(pe, rails, settings, {}, moves)),
        nic(*provider->nics()[0]),
        handle(heap.handle()),
        key(nic.register_memory(heap.data(), kHeapBytes, kAccessRemoteAll, &handle)) {}

  static constexpr std::size_t kHeapBytes = 1 << 20;

  uint64_t at(std::size_t offset) const { return reinterpret_cast<uint64_t>(heap.data()) + offset; }
  template <class T>
  T& word(std::size_t offset) const {
    return *reinterpret_cast<T*>(heap.data() + offset);
  }
  void open(uint32_t depth = 64, uint32_t receive_depth = 16) {
    endpoint = nic.create_endpoint(depth, receive_depth);
  }
  void connect(const Side& peer) {
    endpoint->connect(peer.nic.address(), peer.endpoint->address());
  }

  // Rings and serves until `count` completions came; gives up after many rounds without one.
  std::vector<Completion> complete(std::size_t count) {
    endpoint->ring_doorbell();
    std::vector<Completion> out(count);
    std::size_t found = 0;
    for (int idle = 0; found < count && idle < 100000; ++idle) {
      nic.progress();
      const std::size_t more = nic.poll(out.data() + found, count - found);
      if (more != 0) idle = 0;
      found += more;
    }
    REQUIRE_MESSAGE(found == count, "expected ", count, " completions, ", found, " came");
    return out;
  }
  Status run(const WorkRequest& request) {
    REQUIRE(endpoint->post(request));
    return complete(1)[0].status;
  }

  HostSegment heap;
  std::unique_ptr<Provider> provider;
  Nic& nic;
  SegmentHandle handle;
  MemoryKey key;
  std::unique_ptr<Endpoint> endpoint;  // after the provider: it must be destroyed first
};

struct Pair {
  explicit Pair(const EmulatedSettings& settings = {}, uint32_t depth = 64,
                MoveQueue* moves = nullptr)
      : a(0, settings, 1, moves), b(1, settings, 1, moves) {
    a.open(depth);
    b.open(depth);
    a.connect(b);
    b.connect(a);
  }

  // `bytes` from a's heap at `from` to b's (READ: the other way), both sides' keys right.
  WorkRequest request(Opcode op, std::size_t from, std::size_t to, uint32_t bytes) const {
    WorkRequest out;
    out.op = op;
    out.local = a.at(from);
    out.lkey = a.key.lkey;
    out.length = bytes;
    out.remote = b.at(to);
    out.rkey = b.key.rkey;
    return out;
  }
  // An inline WRITE of `value` to offset `to` of b's heap.
  template <class T>
  WorkRequest put(const T& value, std::size_t to) {
    values.emplace_back();
    std::memcpy(&values.back(), &value, sizeof value);
    WorkRequest out = request(Opcode::write, 0, to, sizeof value);
    out.inlined = true;
    out.local = reinterpret_cast<uint64_t>(&values.back());
    return out;
  }

  Side a;
  Side b;
  std::deque<uint64_t> values;  // of put(): they do not move
};

inline EmulatedSettings unordered(uint32_t seed = 1) {
  EmulatedSettings out;
  out.ordered = false;
  out.seed = seed;
  return out;
}

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace railshmem::nic
