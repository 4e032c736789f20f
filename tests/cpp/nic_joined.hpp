// Two PEs of one process with NICs that can reach each other, as what every NIC must do is checked
// on (nic_conformance.hpp): heaps that are registered, and endpoints that are joined.
#pragma once

#include <doctest/doctest.h>
#include <sched.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/arch/arch.hpp"
#include "shmem/base/error.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic::conformance {

constexpr std::size_t kHeapBytes = 4 << 20;
constexpr std::size_t kEnd = kHeapBytes;
constexpr auto kPatience = std::chrono::seconds(60);

// One PE's end of the wire: a heap that is registered, and an endpoint.
struct End {
  End(Nic& its_nic, uint32_t depth, uint32_t receive_depth)
      : nic(its_nic),
        heap(HostSegment::create("conformance heap", kHeapBytes)),
        handle(heap.handle()),
        key(nic.register_memory(heap.data(), kHeapBytes, kAccessRemoteAll, &handle)),
        endpoint(nic.create_endpoint(depth, receive_depth)) {}
  ~End() {
    endpoint.reset();
    nic.deregister_memory(key);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  uint64_t at(std::size_t offset) const { return reinterpret_cast<uint64_t>(heap.data()) + offset; }
  template <class T>
  T& word(std::size_t offset) const {
    return *reinterpret_cast<T*>(heap.data() + offset);
  }
  void connect(const End& peer) { endpoint->connect(peer.nic.address(), peer.endpoint->address()); }

  Nic& nic;
  HostSegment heap;
  SegmentHandle handle;
  MemoryKey key;
  std::unique_ptr<Endpoint> endpoint;
};

template <class Wire>
struct Joined {
  explicit Joined(uint32_t depth = 64, uint32_t receive_depth = 16)
      : a(*wire.provider(0).nics()[0], depth, receive_depth),
        b(*wire.provider(1).nics()[0], depth, receive_depth) {
    a.connect(b);
    b.connect(a);
  }

  // One round of both PEs' NICs, whose completions wait in `ended`.
  void serve() {
    const auto look = [](End& end, std::deque<Completion>& ended) {
      Completion batch[8];
      end.nic.progress();
      const std::size_t count = end.nic.poll(batch, 8);
      for (std::size_t i = 0; i < count; ++i)
        if (end.endpoint && batch[i].endpoint == end.endpoint->id()) ended.push_back(batch[i]);
    };
    look(a, ended_a);
    look(b, ended_b);
  }

  // Until it is so; false when it took too long.
  bool wait(const std::function<bool()>& so) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!so()) {
      if (std::chrono::steady_clock::now() > end) return false;
      serve();
      sched_yield();
    }
    return true;
  }

  // Rings, and serves until `count` more completions came.
  std::vector<Completion> complete(End& end, std::size_t count) {
    if (end.endpoint) end.endpoint->ring_doorbell();
    auto& ended = &end == &a ? ended_a : ended_b;
    const bool came = wait([&] { return ended.size() >= count; });
    REQUIRE_MESSAGE(came, "expected ", count, " completions, ", ended.size(), " came");
    const auto last = ended.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<Completion> out(ended.begin(), last);
    ended.erase(ended.begin(), last);
    return out;
  }
  Status run(const WorkRequest& request) {
    REQUIRE(a.endpoint->post(request));
    return complete(a, 1)[0].status;
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
  WorkRequest put(uint64_t value, std::size_t to) {
    values.push_back(value);
    WorkRequest out = request(Opcode::write, 0, to, sizeof value);
    out.inlined = true;
    out.local = reinterpret_cast<uint64_t>(&values.back());
    return out;
  }
  WorkRequest message(uint32_t imm, std::size_t from = 0, uint32_t bytes = 0) const {
    WorkRequest out = request(Opcode::send_imm, from, 0, bytes);
    out.imm = imm;
    return out;
  }

  Wire wire;
  End a;
  End b;
  std::deque<uint64_t> values;  // of put(): they do not move
  std::deque<Completion> ended_a;
  std::deque<Completion> ended_b;
};

template <class Wire>
bool is_absent() {
  const std::string why = Wire::absent();
  if (!why.empty()) MESSAGE("not run: ", why);
  return !why.empty();
}

inline std::string error_text(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

// Which of the two a wrong key or address of one's own is, devices disagree.
inline bool is_local(Status status) {
  return status == Status::local_protection || status == Status::local_operation;
}

// A pair for every request, because the first error ends a queue pair.
template <class Wire>
Status status_of(Opcode op, uint32_t bytes,
                 const std::function<void(Joined<Wire>&, WorkRequest&)>& change) {
  Joined<Wire> pair;
  WorkRequest request = pair.request(op, 0, 0, bytes);
  change(pair, request);
  return pair.run(request);
}

}  // namespace railshmem::nic::conformance

namespace {

using namespace railshmem;
using namespace railshmem::nic;
using namespace railshmem::nic::conformance;

}  // namespace
