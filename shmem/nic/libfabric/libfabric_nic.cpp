#include "shmem/nic/libfabric/libfabric_nic.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "shmem/base/error.hpp"
#include "shmem/nic/libfabric/address.hpp"
#include "shmem/nic/libfabric/status.hpp"

namespace railshmem::nic::libfabric {
namespace {

constexpr uint32_t kMaxDepth = 1u << 14;
constexpr uint64_t kMaxMessage = 1u << 30;
constexpr std::size_t kMaxCompletions = 1u << 17;
constexpr std::chrono::milliseconds kBetweenLooks{20};  // at the interface
constexpr int kCancelRounds = 10000;

bool is_power_of_two(uint32_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

// Ordered are WRITEs of every length that one request can have.
bool is_ordered(const abi::Info& info, uint64_t max_message) {
  const uint64_t order = info.tx_attr->msg_order;
  return (order & (abi::kOrderWaw | abi::kOrderRmaWaw)) != 0 &&
         info.ep_attr->max_order_waw_size >= max_message;
}

}  // namespace

LibfabricNic::LibfabricNic(Found found) : found_(std::move(found)) {
  const abi::Info& info = *found_.info;
  const std::string who = found_.name + " (" + found_.fabric + ")";
  fabric_ = open_object<abi::Fabric>(who + ": no fabric", [&](abi::Fabric** out) {
    return Library::get().fabric(info.fabric_attr, out, nullptr);
  });
  domain_ = open_object<abi::Domain>(who + ": no domain", [&](abi::Domain** out) {
    return fabric_->ops->domain(fabric_.get(), found_.info.get(), out, nullptr);
  });
  av_ = open_object<abi::Av>(who + ": no address vector", [&](abi::Av** out) {
    abi::AvAttr attributes = {};
    return domain_->ops->av_open(domain_.get(), &attributes, out, nullptr);
  });
  open_queue(who);
  ep_ = open_object<abi::Ep>(who + ": no endpoint", [&](abi::Ep** out) {
    return domain_->ops->endpoint(domain_.get(), found_.info.get(), out, nullptr);
  });
  abi::Fid& fid = ep_->fid;
  check(fid.ops->bind(&fid, &cq_->fid, abi::kSend | abi::kRecv), who + ": its queue");
  check(fid.ops->bind(&fid, &av_->fid, 0), who + ": its address vector");
  check(fid.ops->control(&fid, abi::kEnable, nullptr), who + ": its endpoint");
  regions_.emplace(found_.name, info, *domain_, *ep_);

  NicLocation location;
  std::size_t bytes = sizeof location.address;
  check(ep_->cm->getname(&fid, location.address, &bytes), who + ": its address");
  location.bytes = static_cast<uint8_t>(bytes);
  location.naming = regions_->naming().number();
  std::strncpy(location.fabric, found_.fabric.c_str(), sizeof location.fabric - 1);
  address_ = pack<NicAddress>(location);

  capabilities_.max_inline = capabilities_.max_send = kInlineBytes;
  capabilities_.max_message = std::min<uint64_t>(info.ep_attr->max_msg_size, kMaxMessage);
  capabilities_.max_region = ~uint64_t{0};
  capabilities_.ordered = is_ordered(info, capabilities_.max_message);
  if (!found_.interface.empty()) watch_.emplace(found_.interface);
}

// Whoever is not busy sleeps until its descriptor is readable, where the transport has one.
void LibfabricNic::open_queue(const std::string& who) {
  const abi::Info& info = *found_.info;
  abi::CqAttr attributes = {};
  attributes.format = abi::kCqTagged;
  attributes.size = std::min(info.tx_attr->size + info.rx_attr->size, kMaxCompletions);
  attributes.wait_obj = abi::kWaitFd;
  abi::Cq* made = nullptr;
  if (domain_->ops->cq_open(domain_.get(), &attributes, &made, nullptr) == 0) {
    cq_.reset(made);
    if (cq_->fid.ops->control(&cq_->fid, abi::kGetWait, &wait_descriptor_) == 0) return;
    wait_descriptor_ = -1;
    cq_.reset();
  }
  attributes.wait_obj = abi::kWaitNone;
  cq_ = open_object<abi::Cq>(who + ": no completion queue", [&](abi::Cq** out) {
    return domain_->ops->cq_open(domain_.get(), &attributes, out, nullptr);
  });
}

bool LibfabricNic::arm(int* descriptor, bool* possible) {
  const auto held = lock();
  *descriptor = ep_ == nullptr ? -1 : wait_descriptor_;
  *possible = wait_descriptor_ >= 0;
  if (*descriptor < 0) return true;
  if (!ready_.empty() || !arrivals_.empty()) return false;
  abi::Fid* fid = &cq_->fid;
  return fabric_->ops->trywait(fabric_.get(), &fid, 1) == 0;
}

// In this order: the endpoint first, so that libfabric lets go of operations and regions.
LibfabricNic::~LibfabricNic() {
  ep_.reset();
  regions_.reset();
}

bool LibfabricNic::needs_descriptors() const {
  return (found_.info->domain_attr->mr_mode & abi::kMrLocal) != 0;
}

MemoryKey LibfabricNic::register_memory(void* address, std::size_t bytes, uint32_t access,
                                        const SegmentHandle* /*shared*/) {
  const auto held = lock();
  return regions_->add(address, bytes, access);
}

void LibfabricNic::deregister_memory(const MemoryKey& key) {
  const auto held = lock();
  regions_->remove(key);
}

std::unique_ptr<Endpoint> LibfabricNic::create_endpoint(uint32_t depth, uint32_t receive_depth) {
  if (!is_power_of_two(depth) || depth > kMaxDepth || !is_power_of_two(receive_depth) ||
      receive_depth > kMaxDepth)
    fail(ErrorKind::argument, name(), ": queues of ", depth, " requests and ", receive_depth,
         " receive buffers: expected powers of two up to ", kMaxDepth);
  const auto id = static_cast<uint32_t>(endpoints_.size());
  // The highest bit of a tag that the fabric carries.
  const uint64_t tags = found_.info->ep_attr->mem_tag_format;
  const int bits = tags == 0 ? 64 : 64 - __builtin_clzll(tags);
  if (bits < 64 && uint64_t{id} >> std::max(bits - 32, 0) != 0)
    fail(ErrorKind::init, name(), ": endpoint ", id, " has no place in its tags of ", bits,
         " bits");
  auto made = std::make_unique<LibfabricEndpoint>(*this, id, depth, receive_depth);
  endpoints_.push_back(made.get());
  return made;
}

void LibfabricNic::forget(LibfabricEndpoint& endpoint, std::unique_ptr<Operations> operations,
                          const MemoryKey& inline_key) {
  endpoints_[endpoint.id()] = nullptr;
  if (endpoint.has_completions) ready_.erase(std::find(ready_.begin(), ready_.end(), &endpoint));
  if (endpoint.has_work) working_.erase(std::find(working_.begin(), working_.end(), &endpoint));
  operations->endpoint = nullptr;
  const auto held = lock();
  // Canceled receives come back at once; nobody may write into their buffers after this.
  const auto receiving = [&] {
    return std::any_of(operations->receives.begin(), operations->receives.end(),
                       [](const Receive& one) { return one.in_flight; });
  };
  for (int round = 0; round < kCancelRounds && ep_ != nullptr && receiving(); ++round)
    read_completions();
  retired_.push_back({std::move(operations), inline_key});
  free_retired();
}

void LibfabricNic::free_retired() {
  const auto first = std::partition(retired_.begin(), retired_.end(), [](const Retired& one) {
    return one.operations->in_flight != 0;
  });
  for (auto one = first; one != retired_.end(); ++one)
    if (one->inline_key.lkey != 0) regions_->remove(one->inline_key);
  retired_.erase(first, retired_.end());
}

abi::Address LibfabricNic::reach(const NicAddress& peer) {
  const auto far = unpack<NicLocation>(peer);
  const auto ours = unpack<NicLocation>(address_);
  if (std::memcmp(far.provider, ours.provider, sizeof far.provider) != 0)
    fail(ErrorKind::init, name(), " cannot reach a NIC of another provider");
  if (std::strncmp(far.fabric, ours.fabric, sizeof far.fabric) != 0 || far.naming != ours.naming)
    fail(ErrorKind::init, name(), " speaks ", ours.fabric, " and cannot reach a NIC that speaks ",
         far.fabric, far.naming != ours.naming ? " and names memory in another way" : "");
  const auto held = lock();
  const auto [known, is_new] = peers_.try_emplace(far.address_bytes(), abi::kNoAddress);
  if (is_new) {
    const int result = av_->ops->insert(av_.get(), far.address, 1, &known->second, 0, nullptr);
    if (result != 1) {
      peers_.erase(known);
      fail(ErrorKind::init, name(),
           " cannot reach a peer: its address is refused: ", Library::get().error_text(result));
    }
  }
  return known->second;
}

void LibfabricNic::check_receive(uint32_t endpoint, uint64_t address, uint32_t lkey,
                                 uint32_t bytes) {
  const auto held = lock();
  void* descriptor = nullptr;
  if (bytes != 0 && !regions_->find(lkey, address, bytes, &descriptor))
    fail(ErrorKind::argument, name(), ", endpoint ", endpoint, ": a receive buffer of ",
         bytes_text(bytes), " at ", address, " is not inside a registered region");
}

void LibfabricNic::list_completions(LibfabricEndpoint& endpoint) {
  if (endpoint.has_completions) return;
  endpoint.has_completions = true;
  ready_.push_back(&endpoint);
}

void LibfabricNic::list_work(LibfabricEndpoint& endpoint) {
  if (endpoint.has_work) return;
  endpoint.has_work = true;
  working_.push_back(&endpoint);
}

void LibfabricNic::cancel(Operation& operation) {
  if (ep_ != nullptr) ep_->ops->cancel(&ep_->fid, &operation);
}

void LibfabricNic::serve(LibfabricEndpoint& endpoint) {
  const auto held = lock();
  if (ep_ == nullptr)
    endpoint.abandon(Status::peer_unreachable);
  else if (!endpoint.submit())
    list_work(endpoint);
}

bool LibfabricNic::serve_all() {
  const std::deque<LibfabricEndpoint*> all = std::exchange(working_, {});
  for (LibfabricEndpoint* endpoint : all) {
    endpoint->has_work = false;
    if (!endpoint->submit()) list_work(*endpoint);
  }
  return working_.size() < all.size();
}

void LibfabricNic::completed(Operation& operation, Status status, std::size_t bytes, uint32_t imm) {
  Operations& owner = *operation.owner;
  --owner.in_flight;
  if (owner.endpoint == nullptr) {
    operation.in_flight = false;
  } else if (operation.receives) {
    Completion arrival;
    if (owner.endpoint->received(static_cast<Receive&>(operation), status, bytes, imm, &arrival))
      arrivals_.push_back(arrival);
  } else {
    owner.endpoint->ended(static_cast<Request&>(operation), status);
  }
}

bool LibfabricNic::read_completions() {
  std::array<abi::CqTaggedEntry, 64> entries;
  const ssize_t count = cq_->ops->read(cq_.get(), entries.data(), entries.size());
  if (count == -abi::kErrorAvailable) {
    read_error();
    return true;
  }
  for (ssize_t i = 0; i < count; ++i) {
    const abi::CqTaggedEntry& entry = entries[static_cast<std::size_t>(i)];
    if (entry.op_context != nullptr)
      completed(*static_cast<Operation*>(entry.op_context), Status::ok, entry.len,
                static_cast<uint32_t>(entry.tag));
  }
  return count > 0;
}

void LibfabricNic::read_error() {
  abi::CqErrorEntry entry = {};
  if (cq_->ops->readerr(cq_.get(), &entry, 0) != 1 || entry.op_context == nullptr) return;
  completed(*static_cast<Operation*>(entry.op_context), status_of(entry.err), entry.len,
            static_cast<uint32_t>(entry.tag));
}

// A transport may try for minutes to reach anybody over an interface that has no carrier.
bool LibfabricNic::is_down() {
  if (!watch_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kBetweenLooks) return false;
  looked_ = now;
  return !watch_->is_running();
}

// For good: what peers sent before may not arrive after they were told that it never will.
void LibfabricNic::go_down() {
  ep_.reset();
  for (LibfabricEndpoint* endpoint : endpoints_)
    if (endpoint != nullptr) endpoint->abandon(Status::peer_unreachable);
}

bool LibfabricNic::progress() {
  const auto held = lock();
  if (ep_ == nullptr) return false;
  if (is_down()) {
    go_down();
    return true;
  }
  bool moved = read_completions();
  if (!working_.empty()) moved |= serve_all();
  if (!retired_.empty()) free_retired();
  return moved;
}

std::size_t LibfabricNic::poll(Completion* out, std::size_t room) {
  std::size_t count = 0;
  for (; count < room && !arrivals_.empty(); arrivals_.pop_front())
    out[count++] = arrivals_.front();
  while (count < room && !ready_.empty()) {
    LibfabricEndpoint* endpoint = ready_.front();
    while (count < room && endpoint->poll(&out[count])) ++count;
    if (count == room) break;  // it may have more
    endpoint->has_completions = false;
    ready_.pop_front();
  }
  return count;
}

}  // namespace railshmem::nic::libfabric
