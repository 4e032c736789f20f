#include "shmem/api/collective_call.hpp"

#include <cstring>

namespace railshmem {

CollectiveCall::CollectiveCall(Runtime& runtime, Team& on, const char* name)
    : parts(runtime.parts()),
      meetings(parts.meetings),
      team(on),
      name_(name),
      span_(parts.context.trace, device::Moment::collective, 0, -1, -1,
            static_cast<uint32_t>(on.slot())),
      name_hash_(hash_of(name, std::strlen(name))) {
  parts.require_usable();
  parts.count_in_one_domain(trace::Operation::collective, 0);
}

CollectiveCall::~CollectiveCall() {
  if (moving_) team.broken = true;
}

std::size_t CollectiveCall::total(std::size_t size, std::size_t count) const {
  if (size != 0 && count > SIZE_MAX / 2 / size)
    fail(ErrorKind::argument, name_, ": ", count, " times ", size, " bytes are beyond memory");
  return size * count;
}

void CollectiveCall::require_symmetric(const char* what, const void* address,
                                       std::size_t bytes) const {
  if (bytes > 0 && !parts.heap.contains(address, bytes))
    parts.refuse_address(name_, what, address, bytes);
}

void CollectiveCall::require_apart(const void* dest, std::size_t dest_bytes, const void* source,
                                   std::size_t source_bytes) const {
  const auto* to = static_cast<const char*>(dest);
  const auto* from = static_cast<const char*>(source);
  if (dest_bytes > 0 && source_bytes > 0 && to < from + source_bytes && from < to + dest_bytes)
    fail(ErrorKind::argument, name_, ": dest, ", dest_bytes, " bytes at ", dest, ", and source, ",
         source_bytes, " bytes at ", source, ", overlap");
}

void CollectiveCall::exchange(const void* data, std::size_t bytes, const Meetings::Take& take) {
  const HeapView view(parts.memory, data, bytes);
  meetings.exchange(team, view.data(), bytes, take);
  moving_ = false;
}

void CollectiveCall::meet() {
  const device::DeviceContext* ctx = &parts.context;
  // What went through NICs is in place; inside the node the meeting itself orders the copies.
  if (ctx->lanes != nullptr)
    for (const int pe : team.pes()) meetings.raise_if(!device::quiet_lane(ctx, pe, 0));
  meetings.sync(team);
}

void CollectiveCall::end() {
  meet();
  moving_ = false;
}

int CollectiveCall::counterpart(int member, int node) const {
  const auto& members = team.nodes()[static_cast<std::size_t>(node)];
  return members[static_cast<std::size_t>(team.local_of(member)) % members.size()];
}

device::Signal CollectiveCall::told_signal() const {
  auto* arrived = device::at_offset<uint64_t>(&parts.context, team.area().arrived);
  return device::set_signal(arrived + team.my_pe(), team.transfers);
}

void CollectiveCall::send(int member, void* dest, const void* source, std::size_t bytes,
                          bool tell) {
  if (parts.memory.on_gpu() && parts.context.peer_base[world(member)] != nullptr) {
    copy(in(member, static_cast<char*>(dest)), source, bytes);
    if (tell) this->tell(member);
    return;
  }
  meetings.raise_if(!device::put_signal<arch::Scope::thread>(
      &parts.context, dest, source, bytes, tell ? told_signal() : device::no_signal(),
      world(member)));
}

void CollectiveCall::tell(int member) {
  meetings.raise_if(!device::ring_signal(&parts.context, told_signal(), world(member)));
}

void CollectiveCall::wait_told(int holder, int from) {
  const auto* arrived = device::at_offset<uint64_t>(&parts.context, team.area().arrived);
  const uint64_t* word = in(holder, arrived + from);
  const uint64_t number = team.transfers;
  uint64_t seen = arch::load_acquire(word);
  if (seen >= number) return;
  device::Waiter waiter(&parts.context, device::Waiting::collective, world(from),
                        offset(arrived + from), number);
  while ((seen = arch::load_acquire(word)) < number)
    if (!waiter.again(seen) && arch::load_acquire(word) < number) parts.raise_stopped();
}

}  // namespace railshmem
