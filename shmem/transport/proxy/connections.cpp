#include "shmem/transport/proxy/connections.hpp"

#include "shmem/base/error.hpp"

namespace railshmem::proxy {
namespace {

nic::Nic& nic_of_rail(nic::Provider& provider, int rail, int me, int peer) {
  for (const auto& nic : provider.nics())
    if (static_cast<int>(nic->rail()) == rail) return *nic;
  fail(ErrorKind::init, "PE ", me, " has no NIC on rail ", rail, ", which it needs to reach PE ",
       peer);
}

// Where both sides' home rail is the lane's rail, each has a channel to the other there already:
// the lane uses it, and an ADD may follow its data on one queue pair. Later lanes on the same rail
// are streams of their own.
bool shares_atomics(const Topology& topology, int me, int peer, uint32_t lane) {
  const int rail = topology.rail(me, peer, lane);
  return lane < topology.facts(me).rails.size() && rail == topology.home_rail(me) &&
         rail == topology.home_rail(peer);
}

}  // namespace

Connections::Connections(int me, const Topology& topology, nic::Provider& provider, uint32_t lanes,
                         uint32_t depth, char* heap, uint64_t receive_offset)
    : me_(me), n_pes_(topology.n_pes()), lanes_(lanes), receives_(heap + receive_offset) {
  by_endpoint_.resize(provider.nics().size());
  const auto make = [&](int peer, int rail) {
    nic::Nic& nic = nic_of_rail(provider, rail, me, peer);
    auto channel = std::make_unique<Channel>(nic, peer, depth, kReceives);
    std::size_t nic_index = 0;
    while (provider.nics()[nic_index].get() != &nic) ++nic_index;
    auto& table = by_endpoint_[nic_index];
    const uint32_t id = channel->endpoint().id();
    if (id >= table.size()) table.resize(id + 1);
    table[id] = channel.get();
    return channel;
  };
  for (int peer = 0; peer < n_pes_; ++peer) {
    const Pair pair = topology.pair(me, peer);
    if (pair.path == Path::none)
      fail(ErrorKind::init, "PE ", me, " cannot reach PE ", peer, ": ", pair.reason);
    for (uint32_t lane = 0; lane < lanes_; ++lane) {
      const bool needed = pair.path == Path::proxy && !shares_atomics(topology, me, peer, lane);
      channels_.push_back(needed ? make(peer, topology.rail(me, peer, lane)) : nullptr);
    }
    channels_.push_back(make(peer, topology.home_rail(peer)));
    channels_.push_back(make(peer, topology.home_rail(me)));
    atomics_to(peer)->credits = kReceives;
  }
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
  const std::size_t per_peer = lanes_ + 2;
  for (std::size_t rail = 0; rail < nics[static_cast<std::size_t>(me_)].size(); ++rail)
    lkeys_.push_back(keys.local(static_cast<int>(rail)));
  for (int peer = 0; peer < n_pes_; ++peer)
    for (std::size_t slot = 0; slot < per_peer; ++slot) {
      Channel* channel = at(peer, static_cast<uint32_t>(slot));
      if (channel == nullptr) continue;
      // The peer's answering channel belongs to our asking one, and the other way round.
      std::size_t match = slot;
      if (slot == lanes_) match = lanes_ + 1;
      if (slot == lanes_ + 1) match = lanes_;
      const auto& nic =
          nics[static_cast<std::size_t>(peer)][static_cast<std::size_t>(channel->rail())];
      channel->endpoint().connect(nic, theirs[static_cast<std::size_t>(peer) * per_peer + match]);
      if (slot >= lanes_)
        for (uint64_t index = 0; index < kReceives; ++index) give_back(*channel, index);
    }
}

Channel* Connections::find(std::size_t nic_index, uint32_t endpoint) const {
  const auto& table = by_endpoint_[nic_index];
  return endpoint < table.size() ? table[endpoint] : nullptr;
}

uint64_t Connections::buffer_of(const Channel& channel, uint64_t index) const {
  const bool asks = atomics_to(channel.peer()) == &channel;
  const uint64_t first = (static_cast<uint64_t>(channel.peer()) * 2 + (asks ? 0 : 1)) * kReceives;
  return reinterpret_cast<uint64_t>(receives_) + (first + index % kReceives) * kReceiveBytes;
}

const char* Connections::received(const Channel& channel, uint64_t index) const {
  return reinterpret_cast<const char*>(buffer_of(channel, index));
}

void Connections::give_back(Channel& channel, uint64_t index) const {
  channel.endpoint().post_receive(buffer_of(channel, index),
                                  lkeys_[static_cast<std::size_t>(channel.rail())], kReceiveBytes);
}

}  // namespace railshmem::proxy
