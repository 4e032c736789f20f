#include <doctest/doctest.h>

#include <map>
#include <set>

#include "shmem/topology/rails.hpp"
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

namespace {

using Places = std::vector<std::vector<NicPlace>>;
using Rails = std::vector<std::vector<uint32_t>>;

PeFacts on_host(const std::string& host, std::size_t pe, std::size_t n_pes,
                const std::vector<uint32_t>& rails, const std::vector<uint32_t>& distances = {}) {
  PeFacts fact;
  fact.host = fact.boot_id = host;
  fact.rails = rails;
  for (const uint32_t rail : rails) fact.nics.push_back("nic" + std::to_string(rail));
  fact.distances = distances;
  fact.maps.resize(n_pes);
  fact.maps[pe] = true;
  return fact;
}

}  // namespace

TEST_CASE("rails: NICs of one network are one rail, whatever their order and number on a host") {
  const Places nics = {{{"a", "10.1.0.0/24"}, {"a", "10.2.0.0/24"}},
                       {{"b", "10.2.0.0/24"}, {"b", "10.1.0.0/24"}},
                       {{"c", "10.2.0.0/24"}},
                       {}};
  const Rails rails = assign_rails(nics);
  CHECK(rails == Rails{{0, 1}, {1, 0}, {1}, {}});
  CHECK(count_rails(rails) == 2);
}

TEST_CASE("rails: several NICs in one flat network are several rails, by their order") {
  const Places nics = {{{"a", "fe80"}, {"a", "fe80"}},
                       {{"b", "fe80"}, {"b", "fe80"}, {"b", "fe80"}}};
  CHECK(assign_rails(nics) == Rails{{0, 1}, {0, 1, 2}});
}

TEST_CASE("rails: where every wire is a subnet of its own, the order of the NICs decides") {
  const Places nics = {{{"a", "10.0.0.0/31"}, {"a", "10.0.1.0/31"}},
                       {{"b", "10.0.2.0/31"}, {"b", "10.0.3.0/31"}}};
  CHECK(assign_rails(nics) == Rails{{0, 1}, {0, 1}});
}

TEST_CASE("rails: a NIC whose network no other host has is a rail of its own beside shared ones") {
  const Places nics = {{{"a", "docker0"}, {"a", "10.1.0.0/16"}}, {{"b", "10.1.0.0/16"}}};
  CHECK(assign_rails(nics) == Rails{{0, 1}, {1}});
}

TEST_CASE("rails: who answers nobody is left out; a single dead link costs both its ends") {
  using Flags = std::vector<bool>;
  CHECK(cut_off(2, {false}) == Flags{false, false});
  CHECK(cut_off(2, {true}) == Flags{true, true});
  CHECK(cut_off(4, {false, true, true, false}) == Flags{false, false, true, false});
  CHECK(cut_off(4, {false, true, false, false}) == Flags{false, true, true, false});
  CHECK(cut_off(3, {true, true, true}) == Flags{true, true, true});
  CHECK(cut_off(1, {}) == Flags{false});
}

TEST_CASE("topology: atomics go over a rail that all PEs have, near to the target") {
  const Topology topology({on_host("a", 0, 3, {0, 1, 2}, {5, 2, 2}), on_host("b", 1, 3, {1, 2}),
                           on_host("c", 2, 3, {2, 1}, {1, 9})});
  CHECK(topology.one_home());
  CHECK(topology.home_rail(0) == 1);  // 0 is not everybody's; 1 and 2 are equally near
  CHECK(topology.home_rail(1) == 1);
  CHECK(topology.home_rail(2) == 2);
  CHECK(topology.atomics_rail(0, 2) == 2);
}

TEST_CASE("topology: without a rail that all PEs have, each pair's first rail carries atomics") {
  const Topology topology(
      {on_host("a", 0, 3, {0, 1}), on_host("b", 1, 3, {1, 2}), on_host("c", 2, 3, {2, 0})});
  CHECK_FALSE(topology.one_home());
  CHECK(topology.home_rail(0) == -1);
  CHECK(topology.atomics_rail(0, 1) == 1);
  CHECK(topology.atomics_rail(1, 0) == 1);
  CHECK(topology.atomics_rail(2, 0) == 0);
  CHECK(topology.atomics_rail(1, 1) == topology.rail(1, 1, 0));
}

TEST_CASE("topology: PEs on different rails cannot reach each other, and the pair says so") {
  const Topology topology({on_host("a", 0, 2, {0}), on_host("b", 1, 2, {1})});
  CHECK(topology.pair(0, 1).path == Path::none);
  CHECK(topology.pair(0, 1).reason ==
        "other host; cannot reach: other rail (nic0 on rail 0; nic1 on rail 1)");
  const Topology bare({on_host("a", 0, 2, {0}), on_host("b", 1, 2, {})});
  CHECK(bare.pair(0, 1).reason == "other host; PE 1 has no NIC that answers");
}
