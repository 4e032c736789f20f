#include "shmem/topology/rails.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace railshmem {
namespace {

bool joins_hosts(const std::vector<std::vector<NicPlace>>& nics) {
  std::map<std::string, std::string> first_host;
  for (const auto& pe : nics)
    for (const NicPlace& nic : pe)
      if (first_host.emplace(nic.network, nic.host).first->second != nic.host) return true;
  return false;
}

bool several_hosts(const std::vector<std::vector<NicPlace>>& nics) {
  std::set<std::string> hosts;
  for (const auto& pe : nics)
    for (const NicPlace& nic : pe) hosts.insert(nic.host);
  return hosts.size() > 1;
}

}  // namespace

std::vector<std::vector<uint32_t>> assign_rails(const std::vector<std::vector<NicPlace>>& nics) {
  const bool by_order = several_hosts(nics) && !joins_hosts(nics);
  // Numbered in the order in which they are met, so that rail r is NIC r of the first PE.
  std::map<std::pair<std::string, uint32_t>, uint32_t> numbers;
  std::vector<std::vector<uint32_t>> rails(nics.size());
  for (std::size_t pe = 0; pe < nics.size(); ++pe) {
    std::map<std::string, uint32_t> met;  // NICs of this PE, by network
    for (const NicPlace& nic : nics[pe]) {
      const std::string network = by_order ? "" : nic.network;
      const std::pair<std::string, uint32_t> key(network, met[network]++);
      const auto next = static_cast<uint32_t>(numbers.size());
      rails[pe].push_back(numbers.emplace(key, next).first->second);
    }
  }
  return rails;
}

std::vector<bool> cut_off(std::size_t size, const std::vector<bool>& failed) {
  const std::size_t links = failed.size();
  std::vector<bool> out(size);
  if (links == 1) return std::vector<bool>(size, failed[0]);
  for (std::size_t host = 0; host < links; ++host)
    out[host] = failed[host] && failed[(host + links - 1) % links];
  const std::vector<bool> alone = out;
  for (std::size_t link = 0; link < links; ++link) {
    const std::size_t next = (link + 1) % size;
    if (failed[link] && !alone[link] && !alone[next]) out[link] = out[next] = true;
  }
  return out;
}

uint32_t count_rails(const std::vector<std::vector<uint32_t>>& rails) {
  uint32_t count = 0;
  for (const auto& pe : rails)
    for (const uint32_t rail : pe) count = std::max(count, rail + 1);
  return count;
}

}  // namespace railshmem
