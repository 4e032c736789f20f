// Init: a few allgathers (what is asked for, cards, who maps whom, keys) and one exchange of queue
// pairs, then everything is connected. A PE
// that cannot go on says so in the next exchange, so that all PEs raise the same error instead of
// waiting.
#include <unistd.h>

#include <algorithm>

#include "shmem/api/report.hpp"
#include "shmem/api/runtime_parts.hpp"
#include "shmem/nic/emulated/emulated.hpp"
#include "shmem/nic/libfabric/libfabric.hpp"
#include "shmem/nic/probe.hpp"
#include "shmem/nic/verbs/verbs.hpp"
#include "shmem/topology/rails.hpp"

namespace railshmem {
namespace {

constexpr uint64_t kPage = 4096;
constexpr double kProbeSeconds = 5;

uint64_t place(uint64_t& end, uint64_t bytes) {
  const uint64_t at = end;
  end += (bytes + 63) / 64 * 64;
  return at;
}

GpuCard gpu_card(const GpuSide& gpu) {
  GpuCard card;
  card.index = gpu.site().device;
  card.name = gpu.facts().name;
  card.architecture = gpu.facts().architecture;
  card.bus_id = gpu.facts().bus_id;
  card.memory_bytes = gpu.facts().memory_bytes;
  return card;
}

// Collective: throws on every PE when one of them has something to say.
void exchange_errors(Bootstrap& bootstrap, const std::string& mine) {
  FixedText<512> error;
  error = mine;
  const auto all = allgather(bootstrap, error);
  for (std::size_t pe = 0; pe < all.size(); ++pe)
    if (all[pe].chars[0] != '\0') fail(ErrorKind::init, "PE ", pe, ": ", all[pe].str());
}

std::string first_difference(const std::string& a, const std::string& b) {
  std::size_t at = 0;
  while (at < a.size() && at < b.size()) {
    const std::size_t end_a = std::min(a.find('\n', at), a.size());
    const std::size_t end_b = std::min(b.find('\n', at), b.size());
    const std::string line_a = a.substr(at, end_a - at);
    const std::string line_b = b.substr(at, end_b - at);
    if (line_a != line_b) return line_a + " against " + line_b;
    at = end_a + 1;
  }
  return "settings of different length";
}

}  // namespace

OwnArea own_area(const Settings& settings, int n_pes, bool has_nics) {
  OwnArea own;
  own.stop = place(own.bytes, sizeof(device::StopRecord));
  own.teams = place(own.bytes, Teams::area_bytes(settings.teams, n_pes));
  if (!has_nics) return own;
  own.receives = place(own.bytes, proxy::Connections::receive_area(n_pes, settings.lanes));
  own.scratch = place(own.bytes, proxy::Atomics::scratch_area());
  own.bounce_bytes = std::max<uint64_t>(4 * settings.chunk_bytes, 1 << 20);
  own.bounce = place(own.bytes, own.bounce_bytes);
  return own;
}

Runtime::Parts::Parts(std::shared_ptr<Bootstrap> job, const Settings& chosen, KernelSource kernels)
    : bootstrap(std::move(job)),
      settings(chosen),
      nic_choice(choose_nics(settings, *bootstrap)),
      own(own_area(settings, bootstrap->size(), nic_choice.kind != ProviderKind::none)),
      gpu_choice(choose_gpu(settings, *bootstrap)),
      heap_memory(make_heap()),
      heap(*heap_memory),
      stop(*reinterpret_cast<device::StopRecord*>(heap.base() + own.stop)),
      meetings(context, [this] { raise_stopped(); }) {
  if (gpu_choice.site) {
    gpu = std::make_unique<GpuSide>(*gpu_choice.site,
                                    kernels ? std::move(kernels) : kernels_from(settings.kernels));
    memory.set_gpu(gpu.get());
  }
  heap.set_pes(bootstrap->rank(), bootstrap->size());
  exchange_cards();
  map_node();
  fill_context();
  start_timeline();  // before anything that may fail on one PE alone: it is an exchange
  std::string error = connect();
  if (error.empty()) error = start();
  exchange_errors(*bootstrap, error);  // with that, nobody puts to a PE that is not ready
}

// A card may be too small for one of its PEs: all hear of it.
std::unique_ptr<SymmetricHeap> Runtime::Parts::make_heap() const {
  if (!gpu_choice.site) return std::make_unique<SymmetricHeap>(settings.heap_bytes, own.bytes);
  const auto n_pes = static_cast<uint64_t>(bootstrap->size());
  std::unique_ptr<SymmetricHeap> made;
  std::string error;
  try {
    made = std::make_unique<SymmetricHeap>(settings.heap_bytes, own.bytes, *gpu_choice.site,
                                           device::sync_area_bytes(n_pes));
  } catch (const Error& caught) {
    error = caught.what();
  }
  exchange_errors(*bootstrap, error);
  return made;
}

// Kernels and what they receive.
void Runtime::Parts::start_gpu() {
  gpu->kernel("core", "rsh_atomic");  // loaded now: a load may wait for kernels that wait
  const auto join = [this](device::DeviceContext& kernels) { gpu_ring->join(kernels); };
  if (proxy) {
    gpu_ring = std::make_unique<GpuRing>(
        *gpu, proxy::RingShape{settings.ring_commands, context.n_pes, settings.lanes});
    proxy->attach(gpu_ring->consumer());
    gpu->make_context(context, heap.host_bytes(), join);
  } else {
    gpu->make_context(context, heap.host_bytes(), nullptr);
  }
}

// Tells what this PE is and has; what goes wrong is told in it, not thrown.
PeCard Runtime::Parts::own_card() {
  PeCard card;
  card.abi = device::kAbi;
  card.pid = ::getpid();
  card.host = host_name();
  card.boot_id = boot_id();
  card.settings = settings.source;
  card.cores = usable_cores();
  card.heap = heap.handle();
  card.device_reason = gpu_choice.reason;
  if (gpu) card.gpu = gpu_card(*gpu);
  const int n_pes = bootstrap->size();
  try {
    if (settings.nodes > static_cast<uint32_t>(n_pes))
      fail(ErrorKind::init, "RAILSHMEM_NODES=", settings.nodes, " with only ", n_pes, " PEs");
    if (settings.nodes > 0)  // blocks of consecutive ranks
      card.emulated_node = static_cast<uint32_t>(static_cast<uint64_t>(bootstrap->rank()) *
                                                 settings.nodes / static_cast<uint64_t>(n_pes));
  } catch (const Error& error) {
    card.error = error.what();
  }
  try {
    provider = make_provider();
    if (!provider) return card;
    if (provider->nics().size() > kMaxNics)
      fail(ErrorKind::init, provider->nics().size(), " NICs, and ", kMaxNics,
           " is the most that a PE may use: choose by RAILSHMEM_NICS");
    for (const auto& nic : provider->nics()) {
      NicCard& nic_card = card.nics[card.n_nics++];
      nic_card.name = nic->name();
      nic_card.network = nic->network();
      nic_card.distance = nic->distance();
      nic_card.address = nic->address();
      nic_card.capabilities = nic->capabilities();
    }
  } catch (const Error& error) {  // whether anybody needs them shows later
    card.no_nics = error.what();
    card.n_nics = 0;
    provider.reset();
  }
  return card;
}

std::unique_ptr<nic::Provider> Runtime::Parts::make_provider() {
  switch (nic_choice.kind) {
    case ProviderKind::automatic:
    case ProviderKind::none:
      return nullptr;
    case ProviderKind::emulated:
      if (gpu) {
        move_runner =
            std::make_unique<nic::GpuMoveRunner>(gpu->site(), gpu->kernel("moves", "rsh_moves"));
        moves = std::make_unique<nic::MoveQueue>(*move_runner);
      }
      return nic::make_emulated_provider(bootstrap->rank(), std::max(settings.rails, 1u),
                                         settings.emulated, gpu_choice.site, moves.get());
    case ProviderKind::verbs:
      return nic::make_verbs_provider(settings.nics, settings.verbs, gpu_choice.site);
    case ProviderKind::libfabric:
      return nic::make_libfabric_provider(settings.nics, settings.libfabric);
  }
  return nullptr;
}

void Runtime::Parts::exchange_cards() {
  cards = allgather(*bootstrap, own_card());
  const PeCard& first = cards.front();
  for (std::size_t pe = 0; pe < cards.size(); ++pe) {
    const PeCard& card = cards[pe];
    if (card.error.chars[0] != '\0') fail(ErrorKind::init, "PE ", pe, ": ", card.error.str());
    if (card.abi != first.abi)
      fail(ErrorKind::init, "PE ", pe, " runs another build of railshmem than PE 0");
    if (card.settings.str() != first.settings.str())
      fail(ErrorKind::init, "PE 0 and PE ", pe, " have different settings: ",
           first_difference(first.settings.str(), card.settings.str()));
  }
  number_rails();
}

void Runtime::Parts::number_rails() {
  std::vector<std::vector<NicPlace>> places(cards.size());
  for (std::size_t pe = 0; pe < cards.size(); ++pe)
    for (int i = 0; i < cards[pe].n_nics; ++i)
      places[pe].push_back({text(cards[pe].boot_id.str(), " ", cards[pe].emulated_node),
                            cards[pe].nics[i].network.str()});
  const auto rails = assign_rails(places);
  for (std::size_t pe = 0; pe < cards.size(); ++pe)
    for (std::size_t i = 0; i < rails[pe].size(); ++i) cards[pe].nics[i].rail = rails[pe][i];
  if (!provider) return;
  const auto& mine = rails[static_cast<std::size_t>(bootstrap->rank())];
  for (std::size_t i = 0; i < mine.size(); ++i) provider->nics()[i]->set_rail(mine[i]);
  keys = KeyTable(bootstrap->size(), static_cast<int>(count_rails(rails)), key_starts());
}

// Maps the peers that may be mapped, and lets what really worked decide who shares a node.
void Runtime::Parts::map_node() {
  const auto me = static_cast<std::size_t>(bootstrap->rank());
  const std::size_t n_pes = cards.size();
  std::vector<char> maps(n_pes, 0);
  maps[me] = 1;
  for (std::size_t pe = 0; pe < n_pes; ++pe) {
    const bool candidate = pe != me && cards[pe].boot_id.str() == cards[me].boot_id.str() &&
                           cards[pe].emulated_node == cards[me].emulated_node;
    if (candidate) maps[pe] = heap.map_peer(static_cast<int>(pe), cards[pe].heap).empty();
  }
  std::vector<char> all(n_pes * n_pes);
  bootstrap->allgather(maps.data(), n_pes, all.data());

  make_topology(all);
  // What emulated NICs reach is a setting.
  if (!topology->all_p2p() && nic_choice.kind != ProviderKind::emulated) {
    probe_rails();
    make_topology(all);
  }
  for (std::size_t pe = 0; pe < n_pes; ++pe)
    if (topology->node(static_cast<int>(pe)) != topology->node(static_cast<int>(me)))
      heap.unmap_peer(static_cast<int>(pe));
}

// `maps[a * n_pes + b]`: PE a could map PE b's heap.
void Runtime::Parts::make_topology(const std::vector<char>& maps) {
  const std::size_t n_pes = cards.size();
  std::vector<PeFacts> facts;
  for (std::size_t pe = 0; pe < n_pes; ++pe) {
    PeFacts fact;
    fact.host = cards[pe].host.str();
    fact.boot_id = cards[pe].boot_id.str();
    fact.emulated_node = cards[pe].emulated_node;
    for (int i = 0; i < cards[pe].n_nics; ++i) {
      const NicCard& nic = cards[pe].nics[i];
      if (!nic.answers) continue;
      fact.rails.push_back(nic.rail);
      fact.nics.push_back(nic.name.str());
      fact.distances.push_back(nic.distance);
    }
    fact.maps.assign(maps.begin() + static_cast<std::ptrdiff_t>(pe * n_pes),
                     maps.begin() + static_cast<std::ptrdiff_t>((pe + 1) * n_pes));
    facts.push_back(std::move(fact));
  }
  topology = std::make_unique<Topology>(std::move(facts));
}

// The first PE of each node tries its NICs towards the next node that has the rail. NICs without an
// answer are not used by any PE of their node.
void Runtime::Parts::probe_rails() {
  const int me = bootstrap->rank();
  const auto nic_of = [&](int pe, uint32_t rail) -> NicCard* {
    PeCard& card = cards[static_cast<std::size_t>(pe)];
    for (int i = 0; i < card.n_nics; ++i)
      if (card.nics[i].rail == rail) return &card.nics[i];
    return nullptr;
  };
  struct Link {
    uint32_t rail;
    std::size_t host;  // of the rail's, whose next one is at the other end
    bool starts;       // this PE is at the end of `host`
  };
  std::vector<std::vector<int>> hosts(keys.n_rails());  // by rail: a PE of each node
  std::vector<Link> links;
  std::vector<nic::ProbeEnd> ends;
  for (uint32_t rail = 0; rail < hosts.size(); ++rail) {
    for (int node = 0; node < topology->n_nodes(); ++node)
      if (const int pe = topology->members(node).front(); nic_of(pe, rail) != nullptr)
        hosts[rail].push_back(pe);
    const std::size_t size = hosts[rail].size();
    const std::size_t count = size < 3 ? size - std::min<std::size_t>(size, 1) : size;
    for (std::size_t host = 0; host < count; ++host) {
      const int from = hosts[rail][host];
      const int to = hosts[rail][(host + 1) % size];
      if (from != me && to != me) continue;
      const int peer = from == me ? to : from;
      for (const auto& nic : provider->nics())
        if (nic->rail() == rail)
          ends.push_back({nic.get(), peer, nic_of(peer, rail)->address, rail});
      links.push_back({rail, host, from == me});
    }
  }
  const auto answers = nic::probe(*bootstrap, ends, keys.n_rails(), kProbeSeconds);

  // [pe][rail] bits: the link to the next host failed, the one from the host before did.
  std::vector<unsigned char> mine(keys.n_rails());
  for (std::size_t i = 0; i < links.size(); ++i)
    if (!answers[i].empty()) mine[links[i].rail] |= links[i].starts ? 1 : 2;
  std::vector<unsigned char> all(mine.size() * cards.size());
  bootstrap->allgather(mine.data(), mine.size(), all.data());
  for (uint32_t rail = 0; rail < hosts.size(); ++rail) {
    const std::size_t size = hosts[rail].size();
    if (size < 2) continue;
    std::vector<bool> failed;
    for (std::size_t host = 0; host < (size == 2 ? 1 : size); ++host) {
      const auto of = [&](int pe) {
        return all[static_cast<std::size_t>(pe) * mine.size() + rail];
      };
      failed.push_back((of(hosts[rail][host]) & 1) != 0 ||
                       (of(hosts[rail][(host + 1) % size]) & 2) != 0);
    }
    const std::vector<bool> out = cut_off(size, failed);
    for (std::size_t host = 0; host < size; ++host)
      if (out[host])
        for (const int pe : topology->members(topology->node(hosts[rail][host])))
          if (NicCard* nic = nic_of(pe, rail)) nic->answers = false;
  }
}

void Runtime::Parts::fill_context() {
  const int me = bootstrap->rank();
  for (int pe = 0; pe < bootstrap->size(); ++pe)
    transports.push_back(topology->pair(me, pe).path == Path::p2p ? device::Transport::p2p
                                                                  : device::Transport::proxy);
  context.abi = device::kAbi;
  context.pe = me;
  context.n_pes = bootstrap->size();
  context.heap = heap.base();
  context.heap_bytes = heap.bytes();
  context.peer_base = heap.peer_bases();
  context.transport = transports.data();
  context.atomics_posted = !topology->all_p2p();
  context.n_lanes = settings.lanes;
  context.lane_stride = settings.lanes + settings.contexts;
  lanes_taken.resize(settings.contexts);
  teams = std::make_unique<Teams>(own.teams, settings.teams);
  teams->start(me, *topology);
  context.world = &teams->world()->device();
  default_context =
      std::make_unique<Context>(*this, device::default_lanes(&context), teams->world());
  context.stop = &stop;
  context.stop_claim = &stop.stop;
  context.job_stop = &stop.stop;
  context.timeout_ns = settings.timeout_ns();
  // Spinning helps only those who have a core each: count the threads that share this host's cores.
  CoreSet cores{};
  int threads = 0;
  for (const PeCard& card : cards)
    if (card.boot_id.str() == cards[static_cast<std::size_t>(me)].boot_id.str()) {
      for (std::size_t word = 0; word < cores.size(); ++word) cores[word] |= card.cores[word];
      threads += context.atomics_posted ? 2 : 1;
    }
  context.spins = threads <= count_cores(cores) ? 200 : 0;
}

// Where the pieces of the heap begin that one key covers on every NIC of the job.
std::vector<uint64_t> Runtime::Parts::key_starts() const {
  uint64_t most = ~uint64_t{0};
  for (const PeCard& card : cards)
    for (int i = 0; i < card.n_nics; ++i)
      most = std::min(most, card.nics[i].capabilities.max_region);
  most = std::max(most / kPage * kPage, kPage);
  // A GPU's memory is not the host's to real NICs.
  const bool apart = gpu && nic_choice.kind != ProviderKind::emulated;
  const std::vector<uint64_t> parts =
      apart ? std::vector<uint64_t>{0, heap.host_bytes(), heap.bytes()}
            : std::vector<uint64_t>{0, heap.bytes()};
  std::vector<uint64_t> starts;
  for (std::size_t part = 0; part + 1 < parts.size(); ++part)
    for (uint64_t at = parts[part]; at < parts[part + 1]; at += std::min(most, heap.bytes()))
      starts.push_back(at);
  return starts;
}

// Returns what the others need of it: [nic][piece]. Only here, where a peer needs it: a NIC that
// nobody uses may be unable to.
std::vector<uint64_t> Runtime::Parts::register_heap() {
  std::vector<uint64_t> rkeys;
  const SegmentHandle handle = heap.handle();
  const std::vector<uint64_t>& starts = keys.starts();
  const PeCard& mine = cards[static_cast<std::size_t>(context.pe)];
  for (std::size_t i = 0; i < provider->nics().size(); ++i) {
    const auto& nic = provider->nics()[i];
    if (!mine.nics[i].answers) {
      rkeys.resize(rkeys.size() + starts.size());
      continue;
    }
    if (gpu && !nic->capabilities().reaches_gpu)
      fail(ErrorKind::init, "NIC ", nic->name(), " of provider ", provider->name(),
           " cannot reach the memory of a GPU, in which the heap is: RAILSHMEM_DEVICE=cpu, or "
           "other NICs (RAILSHMEM_PROVIDER, RAILSHMEM_NICS)");
    for (std::size_t piece = 0; piece < starts.size(); ++piece) {
      const uint64_t end = piece + 1 < starts.size() ? starts[piece + 1] : heap.bytes();
      const nic::MemoryKey key = nic->register_memory(
          heap.base() + starts[piece], end - starts[piece], nic::kAccessRemoteAll, &handle);
      keys.set_local(static_cast<int>(nic->rail()), piece, key.lkey);
      rkeys.push_back(key.rkey);
    }
  }
  return rkeys;
}

void Runtime::Parts::exchange_keys(const std::vector<uint64_t>& mine) {
  const std::size_t pieces = keys.starts().size();
  std::size_t most = 0;
  for (const PeCard& card : cards)
    most = std::max(most, static_cast<std::size_t>(card.n_nics) * pieces);
  std::vector<uint64_t> padded = mine;
  padded.resize(most);
  std::vector<uint64_t> all(most * cards.size());
  bootstrap->allgather(padded.data(), most * sizeof padded[0], all.data());
  for (std::size_t pe = 0; pe < cards.size(); ++pe) {
    keys.set_base(static_cast<int>(pe), cards[pe].heap.base);
    for (int i = 0; i < cards[pe].n_nics; ++i)
      for (std::size_t piece = 0; piece < pieces; ++piece)
        keys.set_remote(static_cast<int>(pe), static_cast<int>(cards[pe].nics[i].rail), piece,
                        all[pe * most + static_cast<std::size_t>(i) * pieces + piece]);
  }
}

// Returns why this PE's queue pairs could not be connected, which the others must hear.
std::string Runtime::Parts::connect() {
  if (topology->all_p2p()) return {};
  for (std::size_t pe = 0; pe < cards.size(); ++pe)
    if (cards[pe].no_nics.chars[0] != '\0')
      fail(ErrorKind::init, "some PEs cannot map each other's memory, and PE ", pe,
           " has no NIC to join them: ", cards[pe].no_nics.str());
  if (nic_choice.kind == ProviderKind::none)
    fail(ErrorKind::init, "some PEs cannot map each other's memory (",
         topology->pair(0, topology->members(1).front()).reason,
         ") and no NICs join them: ", nic_choice.reason, "; RAILSHMEM_PROVIDER chooses some");
  std::string error;
  const std::size_t n_pes = cards.size();
  std::vector<nic::EndpointAddress> mine(n_pes *
                                         proxy::Connections::slots_per_peer(settings.lanes));
  std::vector<uint64_t> rkeys;
  try {
    rkeys = register_heap();
    connections =
        std::make_unique<proxy::Connections>(context.pe, *topology, *provider, settings.lanes,
                                             settings.queue_depth, heap.base(), own.receives);
    mine = connections->addresses();
  } catch (const Error& caught) {
    error = caught.what();
  }
  exchange_errors(*bootstrap, error);
  exchange_keys(rkeys);
  // Each PE learns only what concerns it: everybody's queue pairs would grow with the square.
  std::vector<nic::EndpointAddress> theirs(mine.size());
  bootstrap->alltoall(mine.data(), mine.size() / n_pes * sizeof mine[0], theirs.data());
  std::vector<std::vector<nic::NicAddress>> nics(n_pes);
  for (std::size_t pe = 0; pe < n_pes; ++pe)
    for (int i = 0; i < cards[pe].n_nics; ++i) {
      if (nics[pe].size() <= cards[pe].nics[i].rail) nics[pe].resize(cards[pe].nics[i].rail + 1);
      nics[pe][cards[pe].nics[i].rail] = cards[pe].nics[i].address;
    }
  try {
    connections->connect(theirs, nics, keys);
  } catch (const Error& caught) {
    return caught.what();
  }
  return {};
}

void Runtime::Parts::start_timeline() {
  const PeCard& mine = cards[static_cast<std::size_t>(context.pe)];
  recorder =
      trace::start_recording(settings.trace, *bootstrap, mine.host.str(),
                             mine.boot_id.str() == cards.front().boot_id.str(), waiting_names());
  if (recorder) context.trace = recorder->hook();
}

// Returns why this PE cannot go on, which the others must hear.
std::string Runtime::Parts::start() try {
  if (connections) {
    bool native = topology->one_home();
    bool ordered = true;
    for (const PeCard& card : cards)
      for (int i = 0; i < card.n_nics; ++i) {
        native = native && card.nics[i].capabilities.atomics;
        ordered = ordered && card.nics[i].capabilities.ordered;
      }
    bounce.assign(heap.base() + own.bounce, own.bounce_bytes);
    proxy = std::make_unique<proxy::Proxy>(
        proxy::ProxyParts{settings, *provider, *connections, keys, buffers, context, own.scratch,
                          native, ordered, context.spins * 10, moves.get()});
  }
  if (gpu) start_gpu();
  if (proxy) {
    if (!gpu) context.driver = proxy->driver();
    proxy->start();
  }
  std::vector<std::pair<int, SegmentHandle>> peers;
  for (std::size_t pe = 0; pe < cards.size(); ++pe)
    if (cards[pe].boot_id.str() == cards[static_cast<std::size_t>(context.pe)].boot_id.str())
      peers.emplace_back(static_cast<int>(pe), cards[pe].heap);
  watch.start(peers, *bootstrap, context);
  return {};
} catch (const Error& error) {
  return error.what();
}

Runtime::Parts::~Parts() {
  watch.stop();
  if (proxy) proxy->stop();
}

}  // namespace railshmem
