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

Topology::Topology(std::vector<PeFacts> facts, bool rails_isolated)
    : facts_(std::move(facts)), rails_isolated_(rails_isolated) {
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
  const auto rails = shared_rails(pe, pe);
  if (rails.empty()) return -1;
  return rails[static_cast<std::size_t>(local_index(pe)) % rails.size()];
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
  if (chosen < 0) {
    const bool any = !facts(from).rails.empty() && !facts(to).rails.empty();
    return {Path::none, why + (any ? ", and no rail that both have" : ", and no NIC on one side")};
  }
  return {Path::proxy, why + ": rail " + std::to_string(chosen) +
                           (rails_isolated_ ? " (isolated)" : "") + "; IBGDA is not built yet"};
}

}  // namespace railshmem
