// PEs of one process, each on a node of its own, made by hand from the parts below the runtime: a
// heap, emulated NICs, connections, a progress thread. Beside the host's ring each PE has one whose
// producers stand for a GPU's kernels: what those change by read-modify-write is a block of its
// own, they cannot wake the progress thread, and they have stop words of their own. Its heap's
// memory, but for the library's own area, may be a GPU's as well.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/shmem/order.hpp"
#include "shmem/memory/symmetric_heap.hpp"
#include "shmem/nic/emulated/emulated.hpp"
#include "shmem/transport/proxy/proxy.hpp"
#include "tests/cpp/played_gpu.hpp"
#include "tests/cpp/thread_pes.hpp"

namespace railshmem::testing {

class ProxyPe {
 public:
  ProxyPe(int pe, int n_pes, const Settings& settings, bool gpu_memory)
      : settings_(settings),
        receives_(0),
        scratch_(proxy::Connections::receive_area(n_pes, settings.lanes)),
        heap_(settings.heap_bytes, scratch_ + proxy::Atomics::scratch_area()),
        provider_(nic::make_emulated_provider(pe, settings.rails, settings.emulated, {},
                                              gpu_memory ? &moves_ : nullptr)),
        transports_(static_cast<std::size_t>(n_pes), device::Transport::proxy),
        no_bases_(static_cast<std::size_t>(n_pes)) {
    const SegmentHandle handle = heap_.handle();
    for (const auto& nic : provider_->nics())
      keys_of_heap_.push_back(
          nic->register_memory(heap_.base(), heap_.bytes(), nic::kAccessRemoteAll, &handle));
    host.abi = device::kAbi;
    host.pe = pe;
    host.n_pes = n_pes;
    host.heap = heap_.base();
    host.heap_bytes = heap_.bytes();
    host.peer_base = no_bases_.data();
    host.transport = transports_.data();
    host.atomics_posted = true;
    host.n_lanes = settings.lanes;
    host.lane_stride = settings.lanes + settings.contexts;
    host.stop = &stop;
    host.stop_claim = &stop.stop;
    host.job_stop = &stop.stop;
    host.timeout_ns = settings.timeout_ns();
  }

  // Offset 0 of what tests use; the same on every PE.
  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(heap_.base() + heap_.own_bytes() + offset);
  }
  void clear_stops() { stop = gpu_stop = {}, gpu_claim = 0; }
  proxy::Proxy& proxy() { return *proxy_; }
  const proxy::ConsumerSide& gpu_ring() const { return *gpu_ring_; }
  const PlayedGpu& played_gpu() const { return played_gpu_; }

  device::StopRecord stop = {};
  device::DeviceContext host = {};
  device::StopRecord gpu_stop = {};
  uint32_t gpu_claim = 0;
  device::DeviceContext gpu = {};

 private:
  friend class ProxyPes;

  void join(const std::vector<std::unique_ptr<ProxyPe>>& all, const Topology& topology) {
    for (const auto& other : all) played_gpu_.mark(other->at<char>(0), settings_.heap_bytes);
    keys_ = KeyTable(host.n_pes, static_cast<int>(settings_.rails));
    for (std::size_t rail = 0; rail < keys_of_heap_.size(); ++rail) {
      keys_.set_local(static_cast<int>(rail), 0, keys_of_heap_[rail].lkey);
      for (const auto& other : all)
        keys_.set_remote(other->host.pe, static_cast<int>(rail), 0,
                         other->keys_of_heap_[rail].rkey);
    }
    for (const auto& other : all) keys_.set_base(other->host.pe, other->heap_.handle().base);
    connections_ =
        std::make_unique<proxy::Connections>(host.pe, topology, *provider_, settings_.lanes,
                                             settings_.queue_depth, heap_.base(), receives_);
  }

  void connect(const std::vector<std::unique_ptr<ProxyPe>>& all) {
    const uint32_t slots = proxy::Connections::slots_per_peer(settings_.lanes);
    std::vector<nic::EndpointAddress> theirs;
    std::vector<std::vector<nic::NicAddress>> nics;
    for (const auto& other : all) {
      const auto addresses = other->connections_->addresses();
      const auto mine = addresses.begin() + host.pe * static_cast<std::ptrdiff_t>(slots);
      theirs.insert(theirs.end(), mine, mine + slots);
      nics.emplace_back();
      for (const auto& nic : other->provider_->nics()) nics.back().push_back(nic->address());
    }
    connections_->connect(theirs, nics, keys_);
  }

  void start(uint32_t gpu_commands, uint32_t gpu_results, bool gpu_memory) {
    proxy_ = std::make_unique<proxy::Proxy>(proxy::ProxyParts{
        settings_, *provider_, *connections_, keys_, buffers_, host, scratch_,
        settings_.emulated.atomics, settings_.emulated.ordered, 0, gpu_memory ? &moves_ : nullptr});
    const proxy::RingShape shape{gpu_commands, host.n_pes, settings_.lanes, gpu_results};
    consumer_block_ = std::make_unique<proxy::HostBlock>(proxy::ConsumerSide::bytes(shape));
    producer_block_ = std::make_unique<proxy::HostBlock>(proxy::ProducerSide::bytes(shape));
    gpu_ring_ = std::make_unique<proxy::ConsumerSide>(shape, consumer_block_->data());
    const proxy::ProducerSide producers(
        *gpu_ring_, reinterpret_cast<uint64_t>(producer_block_->data()), nullptr);
    std::copy(producers.image().begin(), producers.image().end(), producer_block_->data());
    gpu = host;
    gpu.stop = &gpu_stop;
    gpu.stop_claim = &gpu_claim;
    producers.join(gpu);
    proxy_->attach(*gpu_ring_);
    proxy_->start();
  }

  const Settings settings_;
  const uint64_t receives_, scratch_;
  SymmetricHeap heap_;
  PlayedGpu played_gpu_;
  nic::MoveQueue moves_{played_gpu_};
  std::unique_ptr<nic::Provider> provider_;
  const std::vector<device::Transport> transports_;
  std::vector<char*> no_bases_;
  std::vector<nic::MemoryKey> keys_of_heap_;
  KeyTable keys_;
  RegisteredBuffers buffers_;
  std::unique_ptr<proxy::Connections> connections_;
  std::unique_ptr<proxy::HostBlock> consumer_block_, producer_block_;
  std::unique_ptr<proxy::ConsumerSide> gpu_ring_;
  std::unique_ptr<proxy::Proxy> proxy_;
};

class ProxyPes {
 public:
  explicit ProxyPes(int n_pes, const Environment& environment = {}, uint32_t gpu_commands = 64,
                    uint32_t gpu_results = 16, bool gpu_memory = false) {
    Settings settings = settings_from(environment);
    if (settings.rails == 0) settings.rails = 1;
    std::vector<PeFacts> facts;
    for (int pe = 0; pe < n_pes; ++pe) {
      all_.push_back(std::make_unique<ProxyPe>(pe, n_pes, settings, gpu_memory));
      PeFacts fact;
      fact.boot_id = "one host";
      fact.emulated_node = static_cast<uint32_t>(pe);
      for (uint32_t rail = 0; rail < settings.rails; ++rail) {
        fact.rails.push_back(rail);
        fact.nics.push_back(text("emu", rail));
      }
      fact.maps.resize(static_cast<std::size_t>(n_pes));
      fact.maps[static_cast<std::size_t>(pe)] = true;
      facts.push_back(std::move(fact));
    }
    const Topology topology(std::move(facts));
    for (const auto& pe : all_) pe->join(all_, topology);
    for (const auto& pe : all_) pe->connect(all_);
    for (const auto& pe : all_) pe->start(gpu_commands, gpu_results, gpu_memory);
  }
  // Every thread has stopped before any memory goes.
  ~ProxyPes() {
    for (const auto& pe : all_) pe->proxy().stop();
  }
  ProxyPes(const ProxyPes&) = delete;
  ProxyPes& operator=(const ProxyPes&) = delete;

  ProxyPe& operator[](int pe) { return *all_[static_cast<std::size_t>(pe)]; }

 private:
  std::vector<std::unique_ptr<ProxyPe>> all_;
};

}  // namespace railshmem::testing
