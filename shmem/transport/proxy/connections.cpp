#include "shmem/transport/proxy/connections.hpp"

#include "kernels/nic/mlx5.hpp"
#include "shmem/base/error.hpp"
#include "shmem/transport/proxy/channel_plan.hpp"

namespace railshmem::proxy {
namespace {

std::size_t nic_of_rail(nic::Provider& provider, int rail, int me, int peer) {
  const auto& nics = provider.nics();
  for (std::size_t index = 0; index < nics.size(); ++index)
    if (static_cast<int>(nics[index]->rail()) == rail) return index;
  fail(ErrorKind::init, "PE ", me, " has no NIC on rail ", rail, ", which it needs to reach PE ",
       peer);
}

uint32_t power_of_two_for(uint32_t count) {
  uint32_t power = 1;
  while (power < count) power *= 2;
  return power;
}

}  // namespace

Connections::Connections(int me, const Topology& topology, nic::Provider& provider, uint32_t lanes,
                         uint32_t depth, char* heap, uint64_t receive_offset)
    : me_(me),
      n_pes_(topology.n_pes()),
      lanes_(lanes),
      depth_(depth),
      heap_(heap),
      receives_(receive_offset),
      rails_(provider.nics().size()) {
  by_endpoint_.resize(provider.nics().size());
  const auto make = [&](int peer, uint32_t slot, int rail, uint32_t receives) {
    const std::size_t index = nic_of_rail(provider, rail, me, peer);
    auto channel = std::make_unique<Channel>(*provider.nics()[index], peer, slot, depth,
                                             power_of_two_for(receives), rails_[index], active_);
    auto& table = by_endpoint_[index];
    const uint32_t id = channel->endpoint().id();
    if (id >= table.size()) table.resize(id + 1);
    table[id] = channel.get();
    return channel;
  };
  // First of all: a PE that nobody can reach has no rail for its own atomics either.
  for (int peer = 0; peer < n_pes_; ++peer)
    if (const Pair pair = topology.pair(me, peer); pair.path == Path::none)
      fail(ErrorKind::init, "PE ", me, " cannot reach PE ", peer, ": ", pair.reason);
  for (int peer = 0; peer < n_pes_; ++peer) {
    const std::vector<int> rails = channel_rails(topology, me, peer, lanes);
    for (uint32_t slot = 0; slot < rails.size(); ++slot) {
      const bool optional = slot != lanes && slot != lanes + 1;  // atomics always have theirs
      const bool absent = optional && rails[slot] < 0;
      channels_.push_back(absent ? nullptr
                                 : make(peer, slot, rails[slot], receives_of(slot, lanes)));
    }
    atomics_to(peer)->credits = kCredits;
  }
}

uint64_t Connections::queue_bytes(uint32_t slot, uint32_t lanes, uint32_t depth) {
  const uint64_t receives = power_of_two_for(receives_of(slot, lanes));
  return depth * (sizeof(mlx5::Entry) + sizeof(mlx5::Cqe) + sizeof(Posted)) +
         receives * (sizeof(mlx5::DataSegment) + sizeof(mlx5::Cqe));
}

uint64_t Connections::memory_bytes() const {
  uint64_t bytes = receive_area(n_pes_, lanes_);
  for (const auto& channel : channels_)
    if (channel != nullptr) bytes += queue_bytes(channel->slot(), lanes_, depth_);
  return bytes;
}

std::vector<nic::EndpointAddress> Connections::addresses() const {
  std::vector<nic::EndpointAddress> out;
  for (const auto& channel : channels_)
    out.push_back(channel ? channel->endpoint().address() : nic::EndpointAddress{});
  return out;
}

void Connections::connect(const std::vector<nic::EndpointAddress>& theirs,
                          const std::vector<std::vector<nic::NicAddress>>& nics,
                          const KeyTable& keys) {
  const auto address_at_peer = [&](const Channel& channel) -> const nic::EndpointAddress& {
    return theirs[static_cast<std::size_t>(channel.peer()) * slots_per_peer(lanes_) +
                  slot_at_peer(channel.slot())];
  };
  keys_ = &keys;
  for (const auto& channel : channels_) {
    if (channel == nullptr) continue;
    const auto& nic =
        nics[static_cast<std::size_t>(channel->peer())][static_cast<std::size_t>(channel->rail())];
    channel->endpoint().connect(nic, address_at_peer(*channel));
    const uint32_t receives = receives_of(channel->slot(), lanes_);
    for (uint64_t index = 0; index < receives; ++index) give_back(*channel, index);
  }
}

Channel* Connections::on_other_rail(const Channel& than) const {
  for (uint32_t slot = 0; slot < slots_per_peer(lanes_); ++slot) {
    Channel* other = at(than.peer(), slot);
    if (other != nullptr && other->state == Channel::State::up && other->rail() != than.rail())
      return other;
  }
  return nullptr;
}

Channel* Connections::beside(const Channel& channel) const {
  Channel* found = on_other_rail(channel);
  for (uint32_t slot = 0; found == nullptr && slot < slots_per_peer(lanes_); ++slot) {
    Channel* other = at(channel.peer(), slot);
    if (other != nullptr && other->state == Channel::State::up) found = other;
  }
  return found;
}

Channel* Connections::find(std::size_t nic_index, uint32_t endpoint) const {
  const auto& table = by_endpoint_[nic_index];
  return endpoint < table.size() ? table[endpoint] : nullptr;
}

// Its offset in the heap. The area begins at a multiple of the buffers' size, and so do keys.
uint64_t Connections::buffer_of(const Channel& channel, uint64_t index) const {
  const bool asks = channel.slot() == lanes_;
  const uint64_t first =
      (static_cast<uint64_t>(channel.peer()) * 2 + (asks ? 0 : 1)) * buffers(lanes_);
  return receives_ + (first + index % buffers(lanes_)) * kReceiveBytes;
}

const char* Connections::received(const Channel& channel, uint64_t index) const {
  return heap_ + buffer_of(channel, index);
}

// Notices have no bytes, so that channels without messages need no memory for them.
void Connections::give_back(Channel& channel, uint64_t index) const {
  if (!has_messages(channel)) {
    channel.endpoint().post_receive(0, 0, 0);
    return;
  }
  const uint64_t offset = buffer_of(channel, index);
  channel.endpoint().post_receive(reinterpret_cast<uint64_t>(heap_ + offset),
                                  keys_->local(channel.rail(), offset), kReceiveBytes);
}

bool Connections::drain() {
  bool moved = false;
  for (Channel* channel : active_) moved |= channel->drain();
  return moved;
}

void Connections::ring_doorbells() {
  std::size_t still = 0;
  for (Channel* channel : active_)
    if (channel->ring_doorbell()) active_[still++] = channel;
  active_.resize(still);
}

}  // namespace railshmem::proxy
