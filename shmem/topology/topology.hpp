// Who reaches whom, and how: nodes, local indices, rails, the transport of each pair and its
// reason. Every PE computes the same answer from the same allgathered facts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace railshmem {

// What one PE knows about itself and its peers before any connection exists.
struct PeFacts {
  std::string host;                      // for people; identity is `boot_id`
  std::string boot_id;                   // of the running kernel
  uint32_t emulated_node = 0;            // RAILSHMEM_NODES
  std::vector<uint32_t> rails;           // of its NICs, by NIC index; see rails.hpp
  std::vector<std::string> nics;         // their names
  std::vector<uint32_t> distances = {};  // from its GPU or cores; empty: all alike
  std::vector<bool> maps;                // [n_pes] whose heap it could really map
};

enum class Path : uint8_t { p2p, ibgda, proxy, none };
const char* name_of(Path path);

struct Pair {
  Path path = Path::none;
  std::string reason;  // why this one, and why not a better one
};

class Topology {
 public:
  explicit Topology(std::vector<PeFacts> facts);

  int n_pes() const { return static_cast<int>(facts_.size()); }
  const PeFacts& facts(int pe) const { return facts_[index(pe)]; }

  int n_nodes() const { return static_cast<int>(members_.size()); }
  int node(int pe) const { return node_[index(pe)]; }
  int local_index(int pe) const { return local_index_[index(pe)]; }
  const std::vector<int>& members(int node) const {
    return members_[static_cast<std::size_t>(node)];
  }

  Pair pair(int from, int to) const;
  bool all_p2p() const { return n_nodes() == 1; }

  // The rail of lane `lane` between two PEs: the same from both sides, spread over the rails both
  // can use. -1 where there is none.
  int rail(int a, int b, uint32_t lane) const;

  // A rail that all PEs have and whose NIC is near to this one: through it every atomic on its heap
  // goes, and the NIC is the one place where they are atomic. -1 where no rail joins all PEs.
  int home_rail(int pe) const;
  // Every atomic on a PE's heap can go through one NIC.
  bool one_home() const { return !common_rails_.empty(); }
  // On which `from` asks for atomics on the heap of `target`: its home rail, if there is one.
  int atomics_rail(int from, int target) const;

 private:
  static std::size_t index(int pe) { return static_cast<std::size_t>(pe); }
  std::vector<int> shared_rails(int a, int b) const;
  std::string no_shared_rail(int a, int b) const;

  std::vector<PeFacts> facts_;
  std::vector<int> common_rails_;  // of all PEs
  std::vector<int> node_;
  std::vector<int> local_index_;
  std::vector<std::vector<int>> members_;
};

}  // namespace railshmem
