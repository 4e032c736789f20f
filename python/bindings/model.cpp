// What `railshmem model` asks about jobs that do not run: nodes, rails, forwarders and queue pairs,
// by the code that jobs use.
#include <pybind11/numpy.h>

#include "ep/node_map.hpp"
#include "ep/routing.hpp"
#include "python/bindings/bindings.hpp"
#include "shmem/transport/proxy/channel_plan.hpp"
#include "shmem/transport/proxy/connections.hpp"

namespace railshmem::python {
namespace {

using Numbers = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

// `n_nodes` hosts with `pes` PEs each, in blocks of consecutive ranks, every one of which has the
// host's NICs, one on each of `rails` rails.
Topology topology_of(int n_nodes, int pes, int rails) {
  if (n_nodes < 1 || pes < 1 || rails < 1)
    fail(ErrorKind::argument, "a cluster of ", n_nodes, " nodes with ", pes, " PEs and ", rails,
         " rails: expected at least 1 of each");
  const int n_pes = n_nodes * pes;
  std::vector<PeFacts> facts(static_cast<std::size_t>(n_pes));
  for (int pe = 0; pe < n_pes; ++pe) {
    PeFacts& own = facts[static_cast<std::size_t>(pe)];
    own.host = own.boot_id = "node" + std::to_string(pe / pes);
    own.maps.assign(static_cast<std::size_t>(n_pes), false);
    for (int mate = pe / pes * pes; mate < (pe / pes + 1) * pes; ++mate)
      own.maps[static_cast<std::size_t>(mate)] = true;
    for (int rail = 0; rail < rails; ++rail) {
      own.rails.push_back(static_cast<uint32_t>(rail));
      own.nics.push_back("nic" + std::to_string(rail));
    }
  }
  return Topology(std::move(facts));
}

void check_range(const char* what, int value, int end) {
  if (value < 0 || value >= end)
    fail(ErrorKind::argument, what, " ", value, ": expected from 0 to ", end - 1);
}

template <class Value>
Numbers each_pe(const Topology& topology, const Value& value) {
  Numbers out(topology.n_pes());
  for (int pe = 0; pe < topology.n_pes(); ++pe) out.mutable_at(pe) = value(pe);
  return out;
}

// value(a[i], b[i]) for all i.
template <class Value>
Numbers each_pair(const Numbers& a, int a_end, const Numbers& b, int b_end, const char* what,
                  const Value& value) {
  if (a.ndim() != 1 || b.ndim() != 1 || a.size() != b.size())
    fail(ErrorKind::argument, "two arrays of one dimension and the same length are needed, not of ",
         a.size(), " and ", b.size(), " elements");
  Numbers out(a.size());
  for (py::ssize_t i = 0; i < a.size(); ++i) {
    check_range("PE", a.at(i), a_end);
    check_range(what, b.at(i), b_end);
    out.mutable_at(i) = value(a.at(i), b.at(i));
  }
  return out;
}

Numbers rails(const Topology& self, const Numbers& a, const Numbers& b, uint32_t lane) {
  return each_pair(a, self.n_pes(), b, self.n_pes(), "PE",
                   [&](int from, int to) { return self.rail(from, to, lane); });
}

Numbers forwarders(const Topology& self, const Numbers& sources, const Numbers& nodes) {
  return each_pair(sources, self.n_pes(), nodes, self.n_nodes(), "node", [&](int source, int node) {
    return ep::NodeMap::forwarder(self, source, node);
  });
}

Numbers channel_rails(const Topology& self, int pe, uint32_t lanes) {
  check_range("PE", pe, self.n_pes());
  const uint32_t slots = proxy::Connections::slots_per_peer(lanes);
  Numbers out({static_cast<py::ssize_t>(self.n_pes()), static_cast<py::ssize_t>(slots)});
  for (int peer = 0; peer < self.n_pes(); ++peer) {
    const auto found = proxy::channel_rails(self, pe, peer, lanes);
    for (uint32_t slot = 0; slot < slots; ++slot) out.mutable_at(peer, slot) = found[slot];
  }
  return out;
}

py::array_t<uint64_t> queue_bytes(uint32_t lanes, uint32_t depth) {
  const uint32_t slots = proxy::Connections::slots_per_peer(lanes);
  py::array_t<uint64_t> out(static_cast<py::ssize_t>(slots));
  for (uint32_t slot = 0; slot < slots; ++slot)
    out.mutable_at(slot) = proxy::Connections::queue_bytes(slot, lanes, depth);
  return out;
}

Numbers expert_owners(int experts, int n_pes) {
  if (experts < 1 || n_pes < 1)
    fail(ErrorKind::argument, experts, " experts on ", n_pes, " PEs: expected at least 1 of each");
  device::ep::Shape shape{};
  shape.experts = experts;
  shape.n_pes = n_pes;
  Numbers out(experts);
  for (int expert = 0; expert < experts; ++expert)
    out.mutable_at(expert) = device::ep::owner_of(shape, expert);
  return out;
}

}  // namespace

void bind_model(py::module_& module) {
  py::module_ m = module.def_submodule("model", "What `railshmem model` asks of jobs not running");
  py::class_<Topology>(m, "Topology",
                       "Nodes in blocks of ranks, every PE with a NIC on every rail.")
      .def(py::init(&topology_of), py::arg("n_nodes"), py::arg("pes_per_node"), py::arg("rails"))
      .def_property_readonly("n_pes", &Topology::n_pes)
      .def_property_readonly("n_nodes", &Topology::n_nodes)
      .def("nodes",
           [](const Topology& t) { return each_pe(t, [&](int pe) { return t.node(pe); }); })
      .def("local_indices",
           [](const Topology& t) { return each_pe(t, [&](int pe) { return t.local_index(pe); }); })
      .def("home_rails",
           [](const Topology& t) { return each_pe(t, [&](int pe) { return t.home_rail(pe); }); })
      .def("rails", &rails, py::arg("a"), py::arg("b"), py::arg("lane") = 0,
           "The rails of a lane between PEs a[i] and b[i].")
      .def("forwarders", &forwarders, py::arg("sources"), py::arg("nodes"),
           "The PEs of nodes[i] that forward the rows of sources[i], which are in other nodes.")
      .def("channel_rails", &channel_rails, py::arg("pe"), py::arg("lanes"),
           "[peers, slots]: the rail of each queue pair of a PE, -1 where there is none.");
  m.def("queue_bytes", &queue_bytes, py::arg("lanes"), py::arg("depth"),
        "By slot: memory of a queue pair.");
  m.def("receive_area", &proxy::Connections::receive_area, py::arg("n_pes"), py::arg("lanes"),
        "Heap bytes of all receive buffers of a PE.");
  m.def("expert_owners", &expert_owners, py::arg("experts"), py::arg("n_pes"),
        "By expert: the PE that owns it.");
  m.attr("EP_CHUNK_BYTES") = ep::kChunkBytes;
}

}  // namespace railshmem::python
