#include "shmem/topology/topology.hpp"

#include <algorithm>

#include "shmem/base/error.hpp"

namespace railshmem {

const char* name_of(Path path) {
  switch (path) {
    case Path::p2p:
      return "P2P";
    case Path::ibgda:
      return "IBGDA";
    case Path::proxy:
      return "PROXY";
    case Path::none:
      return "none";
  }
  return "?";
}

Topology::Topology(std::vector<PeFacts> facts) : facts_(std::move(facts)) {
  // A PE joins the first node all of whose members it maps and is mapped by. Names play no part:
  // containers share them.
  for (int pe = 0; pe < n_pes(); ++pe) {
    std::size_t found = 0;
    for (; found < members_.size(); ++found) {
      const auto& others = members_[found];
      const bool fits = std::all_of(others.begin(), others.end(), [&](int other) {
        return this->facts(pe).maps[index(other)] && this->facts(other).maps[index(pe)];
      });
      if (fits) break;
    }
    if (found == members_.size()) members_.emplace_back();
    node_.push_back(static_cast<int>(found));
    local_index_.push_back(static_cast<int>(members_[found].size()));
    members_[found].push_back(pe);
  }
  if (facts_.empty()) return;
  for (const int rail : shared_rails(0, 0)) {
    const bool everywhere = std::all_of(facts_.begin(), facts_.end(), [&](const PeFacts& its) {
      return std::find(its.rails.begin(), its.rails.end(), static_cast<uint32_t>(rail)) !=
             its.rails.end();
    });
    if (everywhere) common_rails_.push_back(rail);
  }
}

std::vector<int> Topology::shared_rails(int a, int b) const {
  std::vector<int> out;
  const auto& other = facts(b).rails;
  for (const uint32_t rail : facts(a).rails)
    if (std::find(other.begin(), other.end(), rail) != other.end())
      out.push_back(static_cast<int>(rail));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

int Topology::home_rail(int pe) const {
  const PeFacts& its = facts(pe);
  std::vector<int> nearest;
  uint32_t least = 0;
  for (const int rail : common_rails_) {
    const auto nic = static_cast<std::size_t>(
        std::find(its.rails.begin(), its.rails.end(), static_cast<uint32_t>(rail)) -
        its.rails.begin());
    const uint32_t distance = nic < its.distances.size() ? its.distances[nic] : 0;
    if (!nearest.empty() && distance > least) continue;
    if (distance < least) nearest.clear();
    least = distance;
    nearest.push_back(rail);
  }
  if (nearest.empty()) return -1;
  return nearest[static_cast<std::size_t>(local_index(pe)) % nearest.size()];
}

int Topology::atomics_rail(int from, int target) const {
  return one_home() ? home_rail(target) : rail(from, target, 0);
}

int Topology::rail(int a, int b, uint32_t lane) const {
  const auto rails = shared_rails(a, b);
  if (rails.empty()) return -1;
  const int la = local_index(a);
  const int lb = local_index(b);
  std::size_t start = static_cast<std::size_t>(la + lb);
  if (la == lb) {
    // Start at the home rail, so that PEs with the same local index keep to "their" NIC.
    const auto home = std::find(rails.begin(), rails.end(), home_rail(std::min(a, b)));
    start = home == rails.end() ? static_cast<std::size_t>(la)
                                : static_cast<std::size_t>(home - rails.begin());
  }
  return rails[(start + lane) % rails.size()];
}

Pair Topology::pair(int from, int to) const {
  if (from == to) return {Path::p2p, "own memory"};
  if (node(from) == node(to)) return {Path::p2p, "same node: heap mapped"};
  std::string why = "other node";
  if (facts(from).boot_id != facts(to).boot_id)
    why = "other host";
  else if (facts(from).emulated_node != facts(to).emulated_node)
    why = "other emulated node";
  else
    why = "same host, but its memory cannot be mapped";
  const int chosen = rail(from, to, 0);
  if (chosen < 0) return {Path::none, why + "; " + no_shared_rail(from, to)};
  return {Path::proxy, why + ": rail " + std::to_string(chosen) + "; IBGDA is not built yet"};
}

std::string Topology::no_shared_rail(int a, int b) const {
  for (const int pe : {a, b})
    if (facts(pe).rails.empty()) return "PE " + std::to_string(pe) + " has no NIC that answers";
  std::string out = "cannot reach: other rail (";
  for (const int pe : {a, b}) {
    out += pe == a ? "" : "; ";
    for (std::size_t nic = 0; nic < facts(pe).rails.size(); ++nic)
      out += (nic == 0 ? "" : ", ") + facts(pe).nics[nic] + " on rail " +
             std::to_string(facts(pe).rails[nic]);
  }
  return out + ")";
}

}  // namespace railshmem
