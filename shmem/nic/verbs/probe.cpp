#include "shmem/nic/verbs/probe.hpp"

#include <sched.h>

#include <chrono>

#include "shmem/base/error.hpp"

namespace railshmem::nic::verbs {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);
constexpr uint32_t kDepth = 8;

struct Words {
  uint64_t target = 40;
  uint64_t after_add = 0;
  uint64_t after_swap = 0;
};

// False where it failed or did not end in time.
bool completes(Nic& nic, Endpoint& from, const WorkRequest& request) {
  if (!from.post(request)) return false;
  from.ring_doorbell();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  Completion got;
  while (nic.poll(&got, 1) == 0) {
    if (std::chrono::steady_clock::now() > end) return false;
    nic.progress();
    ::sched_yield();
  }
  return got.status == Status::ok;
}

bool effects_show(Nic& nic, Words& words, const MemoryKey& key) {
  const auto from = nic.create_endpoint(kDepth, kDepth);
  const auto to = nic.create_endpoint(kDepth, kDepth);
  from->connect(nic.address(), to->address());
  to->connect(nic.address(), from->address());

  WorkRequest request;
  request.length = 8;
  request.lkey = key.lkey;
  request.remote = reinterpret_cast<uint64_t>(&words.target);
  request.rkey = key.rkey;
  request.op = Opcode::fetch_add;
  request.local = reinterpret_cast<uint64_t>(&words.after_add);
  request.operand = 2;
  if (!completes(nic, *from, request) || words.after_add != 40 || words.target != 42) return false;
  request.op = Opcode::compare_swap;
  request.local = reinterpret_cast<uint64_t>(&words.after_swap);
  request.compare = 42;
  request.operand = 7;
  return completes(nic, *from, request) && words.after_swap == 42 && words.target == 7;
}

}  // namespace

bool atomics_work(Nic& nic) {
  Words words;
  try {
    const MemoryKey key = nic.register_memory(&words, sizeof words, kAccessRemoteAll, nullptr);
    const bool work = effects_show(nic, words, key);
    nic.deregister_memory(key);
    return work;
  } catch (const Error&) {
    return false;  // a device that cannot reach itself cannot show it either
  }
}

}  // namespace railshmem::nic::verbs
