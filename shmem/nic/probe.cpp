#include "shmem/nic/probe.hpp"

#include <sched.h>

#include <algorithm>

#include "kernels/arch/arch.hpp"
#include "shmem/base/error.hpp"

namespace railshmem::nic {
namespace {

constexpr uint32_t kDepth = 8;

struct Try {
  const ProbeEnd* end = nullptr;
  std::unique_ptr<Endpoint> endpoint;
  bool sent = false;
  bool heard = false;
  std::string why = {};

  bool over() const { return !why.empty() || (sent && heard); }
};

void open(Try& one) {
  try {
    one.endpoint = one.end->nic->create_endpoint(kDepth, kDepth);
  } catch (const Error& error) {
    one.why = error.what();
  }
}

void send(Try& one, const EndpointAddress& peer) {
  if (!one.endpoint) return;
  try {
    one.endpoint->connect(one.end->peer_nic, peer);
    one.endpoint->post_receive(0, 0, 0);
    WorkRequest message;
    message.op = Opcode::send_imm;
    message.inlined = true;
    one.endpoint->post(message);
    one.endpoint->ring_doorbell();
  } catch (const Error& error) {
    one.why = error.what();
  }
}

void take(std::vector<Try>& tries, const Nic& nic, const Completion& completion) {
  for (Try& one : tries) {
    if (one.end->nic != &nic || !one.endpoint || one.endpoint->id() != completion.endpoint)
      continue;
    if (completion.status != Status::ok)
      one.why = name_of(completion.status);
    else
      (completion.received ? one.heard : one.sent) = true;
  }
}

}  // namespace

std::vector<std::string> probe(Bootstrap& bootstrap, const std::vector<ProbeEnd>& ends,
                               uint32_t slots, double seconds) {
  std::vector<Try> tries;
  std::vector<Nic*> nics;
  for (const ProbeEnd& end : ends) {
    tries.push_back({&end, nullptr});
    open(tries.back());
    if (std::find(nics.begin(), nics.end(), end.nic) == nics.end()) nics.push_back(end.nic);
  }
  const auto place = [&](const Try& one) {
    return static_cast<std::size_t>(one.end->peer) * slots + one.end->slot;
  };
  std::vector<EndpointAddress> mine(static_cast<std::size_t>(bootstrap.size()) * slots);
  for (const Try& one : tries)
    if (one.endpoint) mine[place(one)] = one.endpoint->address();
  std::vector<EndpointAddress> theirs(mine.size());
  bootstrap.alltoall(mine.data(), slots * sizeof mine[0], theirs.data());
  for (Try& one : tries) send(one, theirs[place(one)]);

  const uint64_t end_ns = arch::clock_ns() + static_cast<uint64_t>(seconds * 1e9);
  while (!std::all_of(tries.begin(), tries.end(), [](const Try& one) { return one.over(); }) &&
         arch::clock_ns() < end_ns) {
    for (Nic* nic : nics) {
      nic->progress();
      Completion batch[16];
      const std::size_t count = nic->poll(batch, 16);
      for (std::size_t i = 0; i < count; ++i) take(tries, *nic, batch[i]);
    }
    sched_yield();
  }
  std::vector<std::string> out;
  for (const Try& one : tries)
    out.push_back(one.over() ? one.why : text("no answer within ", seconds, " s"));
  bootstrap.barrier();  // no end goes while the other still waits for its answer
  return out;
}

}  // namespace railshmem::nic
