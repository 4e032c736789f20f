#include "shmem/nic/emulated/emulated_nic.hpp"

#include <algorithm>
#include <cstring>

#include "shmem/base/error.hpp"

namespace railshmem::nic::emulated {
namespace {

// Queue-pair numbers have 24 bits.
constexpr uint32_t kMaxUses = (1u << 24) / kMaxQueuePairs;

constexpr uint64_t kMaxRegion = ~uint64_t{0};

bool is_power_of_two(uint32_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

}  // namespace

EmulatedNic::EmulatedNic(const NicLocation& location, SharedNic& shared,
                         const EmulatedSettings& settings, const gpu::Site* site, MoveQueue* moves)
    : location_(location),
      name_(text("emu", location.nic)),
      shared_(shared),
      settings_(settings),
      site_(site),
      moves_(moves),
      regions_(shared),
      doorbells_(kMaxQueuePairs) {
  open_nic(shared_);
  set_rail(location.rail);
  const FaultSettings& faults = settings.faults;
  if (faults.any() && (faults.pe < 0 || faults.pe == location.pe))
    faults_ = std::make_unique<Faults>(settings, location.pe, location.rail);
  capabilities_.atomics = settings.atomics;
  capabilities_.ordered = settings.ordered;
  capabilities_.device_queues = true;
  capabilities_.max_inline = mlx5::kMaxInlineWrite;
  capabilities_.max_send = mlx5::kMaxInlineSend;
  capabilities_.max_message = kMaxMessage;
  capabilities_.max_region = settings.region != 0 ? settings.region : kMaxRegion;
  capabilities_.reaches_gpu = moves != nullptr;
  capabilities_.shuts = capabilities_.counts = true;
}

std::string EmulatedNic::network() const {
  return text("emulated rail ", location_.rail);
}

// All endpoints are gone by now, so no peer is let in any more; this refuses new connections.
EmulatedNic::~EmulatedNic() {
  arch::store_release(&shared_.alive, 0u);
}

MemoryKey EmulatedNic::register_memory(void* address, std::size_t bytes, uint32_t access,
                                       const SegmentHandle* shared) {
  Region region;
  region.base = reinterpret_cast<uint64_t>(address);
  region.bytes = bytes;
  region.access = access;
  if (bytes > capabilities_.max_region)
    fail(ErrorKind::argument, name_, ": a region of ", bytes_text(bytes), " at ", address,
         ": the most is ", bytes_text(capabilities_.max_region));
  if (shared != nullptr) {
    region.segment = *shared;
    if (region.base < shared->base || region.base - shared->base > shared->bytes ||
        bytes > shared->bytes - (region.base - shared->base))
      fail(ErrorKind::argument, name_, ": a region of ", bytes_text(bytes), " at ", address,
           " is not inside the segment of ", bytes_text(shared->bytes), " given for it");
  } else if (access != kAccessLocal) {
    fail(ErrorKind::argument, name_, ": a region of ", bytes_text(bytes), " at ", address,
         " is to be reached by peers, which needs a shared segment");
  }
  const uint32_t key = regions_.add(region);
  if (key == 0)
    fail(ErrorKind::argument, name_, ": ", kMaxRegions,
         " regions are registered, the most it holds");
  // The whole segment: what is a GPU's in it shows how the rest can be reached, too.
  if (moves_ != nullptr)
    moves_->runner().learn(
        shared != nullptr ? reinterpret_cast<const void*>(shared->base) : address,
        shared != nullptr ? shared->bytes : bytes);
  return {key, key};
}

void EmulatedNic::deregister_memory(const MemoryKey& key) {
  Region region;
  const bool known = read_region(shared_, key.lkey, &region);
  if (!known || !regions_.revoke(key.lkey))
    fail(ErrorKind::argument, name_, ": no region has the key ", key.lkey);
  for (EmulatedEndpoint* endpoint : endpoints_)
    if (endpoint != nullptr && endpoint->engine().connection())
      endpoint->engine().connection()->wait_for_visitor();
  if (moves_ != nullptr) {
    const bool in_segment = region.segment.bytes != 0;
    moves_->runner().forget(
        reinterpret_cast<const void*>(in_segment ? region.segment.base : region.base));
  }
  regions_.recycle(key.lkey);
}

uint32_t EmulatedNic::take_slot() {
  if (endpoints_.size() < kMaxQueuePairs) {
    endpoints_.push_back(nullptr);
    uses_.push_back(0);
    seen_.push_back(0);
    return static_cast<uint32_t>(endpoints_.size() - 1);
  }
  if (free_slots_.empty())
    fail(ErrorKind::init, name_, ": ", kMaxQueuePairs, " endpoints exist, the most it holds");
  const uint32_t slot = free_slots_.front();
  free_slots_.pop_front();
  return slot;
}

std::unique_ptr<Endpoint> EmulatedNic::create_endpoint(uint32_t depth, uint32_t receive_depth) {
  if (!is_power_of_two(depth) || depth > mlx5::kMaxDepth || !is_power_of_two(receive_depth) ||
      receive_depth > kMaxReceiveDepth)
    fail(ErrorKind::argument, name_, ": queues of ", depth, " requests and ", receive_depth,
         " receive buffers: expected powers of two up to ", mlx5::kMaxDepth, " and ",
         kMaxReceiveDepth);
  // The receive completion queue must have room for every buffer that can be posted.
  if (receive_depth > kReceiveCqEntries - receive_entries_)
    fail(ErrorKind::init, name_, ": no room for ", receive_depth, " receive buffers more: its ",
         kReceiveCqEntries, " receive completions are promised to other endpoints but for ",
         kReceiveCqEntries - receive_entries_);
  const uint32_t slot = take_slot();
  uses_[slot] = (uses_[slot] + 1) % kMaxUses;
  const uint32_t qpn = slot + uses_[slot] * kMaxQueuePairs;
  auto made =
      std::make_unique<EmulatedEndpoint>(*this, qpn, &doorbells_[slot], depth, receive_depth);
  endpoints_[slot] = made.get();
  receive_entries_ += receive_depth;
  return made;
}

void EmulatedNic::forget(EmulatedEndpoint& endpoint) {
  const uint32_t slot = slot_of(endpoint.id());
  receive_entries_ -= endpoint.receive_depth();
  endpoints_[slot] = nullptr;
  doorbells_[slot] = seen_[slot] = 0;
  free_slots_.push_back(slot);
  if (endpoint.has_work) working_.erase(std::find(working_.begin(), working_.end(), &endpoint));
  if (endpoint.has_completions)
    completed_.erase(std::find(completed_.begin(), completed_.end(), &endpoint));
}

std::shared_ptr<Peer> EmulatedNic::reach(const NicAddress& address) {
  const auto far = unpack<NicLocation>(address);
  if (std::memcmp(far.provider, location_.provider, sizeof far.provider) != 0)
    fail(ErrorKind::init, location_.text(), " cannot reach a NIC of another provider");
  if (settings_.isolated && far.rail != location_.rail)
    fail(ErrorKind::init, location_.text(), " cannot reach ", far.text(), ": rails are isolated");
  try {
    auto& peer = peers_[{far.segment.device, far.segment.inode, far.nic}];
    if (peer == nullptr) peer = std::make_shared<Peer>(far, site_, moves_);
    // Pairs with open_nic and with the destructor.
    if (arch::load_acquire(&peer->nic().alive) == 0) fail(ErrorKind::init, "it is closed");
    return peer;
  } catch (const Error& error) {
    fail(ErrorKind::init, location_.text(), " cannot reach ", far.text(), ": ", error.what());
  }
}

void EmulatedNic::list_work(EmulatedEndpoint& endpoint) {
  if (endpoint.has_work) return;
  endpoint.has_work = true;
  working_.push_back(&endpoint);
}

void EmulatedNic::list_completions(EmulatedEndpoint& endpoint) {
  if (endpoint.has_completions) return;
  endpoint.has_completions = true;
  completed_.push_back(&endpoint);
}

// The rail went down.
void EmulatedNic::cut() {
  cut_ = true;
  for (EmulatedEndpoint* endpoint : endpoints_) {
    if (endpoint == nullptr) continue;
    endpoint->engine().cut();
    list_completions(*endpoint);
  }
}

bool EmulatedNic::progress() {
  if (faults_ != nullptr && !cut_ && faults_->rail_is_down()) cut();
  for (std::size_t slot = 0; slot < endpoints_.size(); ++slot) {
    if (arch::load_relaxed(&doorbells_[slot]) == seen_[slot]) continue;
    // Pairs with mlx5::ring. The word always changes: a queue cannot go once round all 2^16 indices
    // without being served.
    seen_[slot] = arch::load_acquire(&doorbells_[slot]);
    list_work(*endpoints_[slot]);
  }
  bool moved = false;
  std::size_t still = 0;
  for (EmulatedEndpoint* endpoint : working_) {
    moved |= endpoint->engine().advance();
    list_completions(*endpoint);
    endpoint->has_work = endpoint->engine().busy();
    if (endpoint->has_work) working_[still++] = endpoint;
  }
  working_.resize(still);
  return moved || still > 0;
}

std::size_t EmulatedNic::poll(Completion* out, std::size_t room) {
  std::size_t count = 0;
  while (count < room) {
    const mlx5::Cqe& arrival = shared_.receive_cq[polled_ % kReceiveCqEntries];
    if (!mlx5::is_ready(&arrival, polled_, kLogReceiveCq)) break;
    ++polled_;
    const uint32_t qpn = mlx5::be32(arrival.qpn);
    EmulatedEndpoint* endpoint = endpoints_[slot_of(qpn)];
    // What arrived for an endpoint that has gone is dropped.
    if (endpoint != nullptr && endpoint->id() == qpn) endpoint->receive(arrival, &out[count++]);
  }
  const bool reorders = faults_ != nullptr && faults_->reorders();
  while (count < room && !completed_.empty()) {
    if (reorders) std::swap(completed_.front(), completed_[faults_->below(completed_.size())]);
    EmulatedEndpoint* endpoint = completed_.front();
    const std::size_t most = reorders ? count + 1 : room;
    while (count < most && endpoint->poll(&out[count])) ++count;
    if (count == most) continue;  // it may have more
    endpoint->has_completions = false;
    completed_.pop_front();
  }
  return count;
}

}  // namespace railshmem::nic::emulated
