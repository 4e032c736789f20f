#include <doctest/doctest.h>

#include <map>
#include <set>

#include "shmem/topology/topology.hpp"

using namespace railshmem;

namespace {

// `nodes[pe]` is the emulated node of each PE; every PE has `rails` NICs.
Topology make(const std::vector<uint32_t>& nodes, uint32_t rails) {
  std::vector<PeFacts> facts;
  for (const uint32_t node : nodes) {
    PeFacts fact;
    fact.host = "box";
    fact.boot_id = "boot";
    fact.emulated_node = node;
    for (uint32_t rail = 0; rail < rails; ++rail) {
      fact.rails.push_back(rail);
      fact.nics.push_back("emu" + std::to_string(rail));
    }
    for (const uint32_t other : nodes) fact.maps.push_back(other == node);
    facts.push_back(fact);
  }
  return Topology(facts);
}

}  // namespace

TEST_CASE("topology: nodes, local indices and members follow from who maps whom") {
  const Topology topology = make({0, 0, 0, 1, 1}, 2);
  CHECK(topology.n_nodes() == 2);
  CHECK(topology.members(0) == std::vector<int>{0, 1, 2});
  CHECK(topology.members(1) == std::vector<int>{3, 4});
  CHECK(topology.local_index(2) == 2);
  CHECK(topology.local_index(4) == 1);
  CHECK(topology.pair(0, 2).path == Path::p2p);
  CHECK(topology.pair(0, 3).path == Path::proxy);
  CHECK_FALSE(topology.all_p2p());
}

TEST_CASE("topology: one host name does not make one node when memory cannot be mapped") {
  // Two containers with one host name were taken for one node elsewhere.
  std::vector<PeFacts> facts(2);
  for (std::size_t pe = 0; pe < 2; ++pe) {
    facts[pe].host = "same";
    facts[pe].boot_id = "same";
    facts[pe].rails = {0};
    facts[pe].nics = {"nic"};
    facts[pe].maps = {pe == 0, pe == 1};
  }
  const Topology topology(facts);
  CHECK(topology.n_nodes() == 2);
  CHECK(topology.pair(0, 1).reason.find("cannot be mapped") != std::string::npos);
}

TEST_CASE("topology: both sides agree on the rail, for every lane, whatever the numbers") {
  for (const uint32_t rails : {1u, 2u, 3u, 8u}) {
    const Topology topology = make({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2}, rails);
    for (int a = 0; a < topology.n_pes(); ++a)
      for (int b = 0; b < topology.n_pes(); ++b)
        for (uint32_t lane = 0; lane < 5; ++lane) {
          CHECK(topology.rail(a, b, lane) == topology.rail(b, a, lane));
          CHECK(topology.rail(a, b, lane) < static_cast<int>(rails));
        }
  }
}

TEST_CASE(
    "topology: traffic does not pile up on one NIC (the larger index as the rail sent all of PE "
    "7's to rail 7)") {
  std::vector<uint32_t> nodes;
  for (uint32_t pe = 0; pe < 16; ++pe) nodes.push_back(pe / 8);
  const Topology topology = make(nodes, 8);
  for (int from = 0; from < 8; ++from) {
    std::map<int, int> per_rail;
    for (int to = 8; to < 16; ++to) ++per_rail[topology.rail(from, to, 0)];
    for (const auto& [rail, count] : per_rail) CHECK(count <= 2);
    // PEs of equal local index keep to their own rail.
    CHECK(topology.rail(from, from + 8, 0) == from);
    CHECK(topology.home_rail(from) == from);
  }
}

TEST_CASE("topology: lanes of one pair spread over all rails") {
  const Topology topology = make({0, 1}, 4);
  std::set<int> seen;
  for (uint32_t lane = 0; lane < 4; ++lane) seen.insert(topology.rail(0, 1, lane));
  CHECK(seen.size() == 4);
}

TEST_CASE("topology: a pair that nothing joins says why") {
  CHECK(make({0, 1}, 0).pair(0, 1).path == Path::none);
  CHECK(make({0, 1}, 0).pair(0, 1).reason.find("no NIC") != std::string::npos);
}
