#include "shmem/api/team.hpp"

#include <algorithm>
#include <map>

#include "shmem/base/error.hpp"

namespace railshmem {
namespace {

uint64_t place(uint64_t& end, uint64_t bytes) {
  const uint64_t at = end;
  end += (bytes + 63) / 64 * 64;
  return at;
}

}  // namespace

TeamArea TeamArea::at(uint64_t offset, int n_pes) {
  const auto members = static_cast<uint64_t>(n_pes);
  TeamArea area;
  area.sync = place(offset, device::sync_area_bytes(members));
  area.arrived = place(offset, members * sizeof(uint64_t));
  area.exchange = place(offset, 2 * kExchangePes * sizeof(ExchangeSlot));
  area.work = place(offset, kWorkBytes);
  return area;
}

uint64_t TeamArea::bytes(int n_pes) {
  return TeamArea::at(0, n_pes).work + kWorkBytes;
}

Team::Team(int slot, const TeamArea& area, std::vector<int> pes, int me, const Topology& topology,
           uint64_t start, TeamConfig config)
    : meetings(start),
      exchanges(start),
      transfers(start),
      slot_(slot),
      area_(area),
      config_(config),
      pes_(std::move(pes)) {
  std::map<int, std::size_t> node_index;  // of the job -> among those with members
  for (std::size_t index = 0; index < pes_.size(); ++index) {
    const auto [found, added] = node_index.try_emplace(topology.node(pes_[index]), nodes_.size());
    if (added) nodes_.emplace_back();
    auto& members = nodes_[found->second];
    node_of_.push_back(static_cast<int>(found->second));
    local_of_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(index));
  }
  for (const auto& members : nodes_)
    leaders_.push_back(pes_[static_cast<std::size_t>(members.front())]);
  const int mine = index_of(me);
  const int node = node_of(mine);
  for (const int member : nodes_[static_cast<std::size_t>(node)])
    locals_.push_back(pes_[static_cast<std::size_t>(member)]);
  device_ = {mine,
             static_cast<int>(pes_.size()),
             pes_.data(),
             static_cast<int>(nodes_.size()),
             node,
             leaders_.data(),
             static_cast<int>(locals_.size()),
             local_of(mine),
             locals_.data(),
             area_.sync,
             &meetings};
}

int Team::world_pe(const char* call, int pe) const {
  if (pe < 0 || pe >= n_pes())
    fail(ErrorKind::argument, call, ": PE ", pe, " does not exist: the team has PEs 0 to ",
         n_pes() - 1);
  return pes_[static_cast<std::size_t>(pe)];
}

int Team::index_of(int world_pe) const {
  const auto found = std::find(pes_.begin(), pes_.end(), world_pe);
  return found == pes_.end() ? -1 : static_cast<int>(found - pes_.begin());
}

uint64_t Team::last_number() const {
  return std::max({meetings, exchanges, transfers}) + 1;  // one may have begun
}

}  // namespace railshmem
