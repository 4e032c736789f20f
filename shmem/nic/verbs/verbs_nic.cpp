#include "shmem/nic/verbs/verbs_nic.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shmem/base/error.hpp"
#include "shmem/nic/distance.hpp"
#include "shmem/nic/verbs/probe.hpp"

namespace railshmem::nic::verbs {
namespace {

constexpr uint32_t kQueueEntries = 16384;    // of a completion queue, where the device has them
constexpr uint64_t kMostMessage = 1u << 30;  // what 32 bits of length can say, and a round number
constexpr uint32_t kRoundsBetweenEvents = 256;  // looking for events is a system call
constexpr std::size_t kBatch = 32;

bool is_power_of_two(uint32_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

uint32_t distance_of(const Port& port, const std::optional<gpu::Site>& site) {
  if (site) return distance_to_gpu(port.folder(), site->driver->facts(site->device).bus_id);
  return distance_to_cores(port.folder(), own_cores());
}

}  // namespace

VerbsNic::VerbsNic(std::shared_ptr<const Library> library, OpenPort open,
                   const VerbsSettings& settings, const std::optional<gpu::Site>& site)
    : library_(std::move(library)),
      settings_(settings),
      site_(site),
      context_(std::move(open.context)),
      attributes_(open.attributes),
      port_(std::move(open.port)),
      domain_(library_, library_->alloc_pd(context_.get())),
      distance_(distance_of(port_, site)) {
  if (domain_.get() == nullptr)
    fail(ErrorKind::init, text(), ": no protection domain: ", errno_text());
  if (settings.relaxed && library_->reg_mr_iova2 == nullptr)
    fail(ErrorKind::init, text(), ": RAILSHMEM_VERBS relaxed=on needs a newer libibverbs");
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
    fail(ErrorKind::init, text(), ": its events cannot be read without waiting: ", errno_text());
  capabilities_.ordered = !settings.relaxed;
  capabilities_.reaches_gpu = can_reach_gpu();
  capabilities_.shuts = true;
  capabilities_.max_inline = capabilities_.max_send = kInlineBytes;
  capabilities_.max_message = std::min(port_.max_message, kMostMessage);
  capabilities_.max_region = attributes_.max_region;
  if (settings.region != 0)
    capabilities_.max_region = std::min(capabilities_.max_region, settings.region);
  capabilities_.atomics = settings.atomics && attributes_.atomics != 0 && atomics_work(*this);
}

std::string VerbsNic::text() const {
  return railshmem::text(port_.name, " (", port_.address(), ")");
}

NicAddress VerbsNic::address() const {
  NicLocation here;
  here.gid = port_.gid;
  here.lid = port_.lid;
  here.ethernet = port_.ethernet;
  const std::string name = text();
  std::memcpy(here.name, name.data(), std::min(name.size(), sizeof here.name));
  NicAddress out;
  std::memcpy(out.bytes, &here, sizeof here);
  return out;
}

// A device that cannot do it says so before it looks at the descriptor.
bool VerbsNic::can_reach_gpu() const {
  if (!site_ || library_->reg_dmabuf_mr == nullptr) return false;
  if (!site_->driver->facts(site_->device).dma_buf) return false;
  errno = 0;
  const OwnedRegion none(library_, library_->reg_dmabuf_mr(domain_.get(), 0, 1, 0, -1, 0));
  return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT;
}

MemoryKey VerbsNic::register_memory(void* address, std::size_t bytes, uint32_t access,
                                    const SegmentHandle*) {
  if (bytes > capabilities_.max_region)
    fail(ErrorKind::argument, text(), ": a region of ", bytes_text(bytes), " at ", address,
         ": the most is ", bytes_text(capabilities_.max_region));
  int flags = kAccessLocalWrite;
  if ((access & kAccessRemoteWrite) != 0) flags |= kAccessRemoteWriteFlag;
  if ((access & kAccessRemoteRead) != 0) flags |= kAccessRemoteReadFlag;
  if ((access & kAccessRemoteAtomic) != 0 && attributes_.atomics != 0)
    flags |= kAccessRemoteAtomicFlag;
  if (settings_.relaxed) flags |= kAccessRelaxedOrdering;
  const bool on_gpu = site_ && site_->driver->device_of(address) >= 0;
  OwnedRegion region =
      on_gpu ? make_gpu_region(address, bytes, flags) : make_region(address, bytes, flags);
  if (region.get() == nullptr) {
    const bool locked = errno == ENOMEM;
    fail(ErrorKind::init, text(), ": cannot register ", bytes_text(bytes), " at ", address, ": ",
         errno_text(), locked ? "; is the limit of locked memory (ulimit -l) too low?" : "");
  }
  const MemoryKey key{region->lkey, region->rkey};
  const std::lock_guard<std::mutex> held(mutex_);
  regions_[key.lkey] = std::move(region);
  return key;
}

OwnedRegion VerbsNic::make_region(void* address, std::size_t bytes, int flags) const {
  const auto same = reinterpret_cast<uint64_t>(address);
  return {library_, settings_.relaxed ? library_->reg_mr_iova2(domain_.get(), address, bytes, same,
                                                               static_cast<unsigned>(flags))
                                      : library_->reg_mr(domain_.get(), address, bytes, flags)};
}

// Drivers export whole pages: the region begins somewhere inside.
OwnedRegion VerbsNic::make_gpu_region(void* address, std::size_t bytes, int flags) const {
  if (!capabilities_.reaches_gpu)
    fail(ErrorKind::argument, text(), ": ", bytes_text(bytes), " at ", address,
         " are a GPU's memory, which it cannot reach");
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uint64_t>(address);
  const uint64_t begin = first / page * page;
  const uint64_t end = (first + bytes + page - 1) / page * page;
  const FileDescriptor exported = site_->driver->export_dma_buf(begin, end - begin);
  return {library_, library_->reg_dmabuf_mr(domain_.get(), first - begin, bytes, first,
                                            exported.get(), flags)};
}

void VerbsNic::deregister_memory(const MemoryKey& key) {
  const std::lock_guard<std::mutex> held(mutex_);
  if (regions_.erase(key.lkey) == 0)
    fail(ErrorKind::argument, text(), ": no region has the key ", key.lkey);
}

uint32_t VerbsNic::take_slot() {
  const auto free = std::find(endpoints_.begin(), endpoints_.end(), nullptr);
  if (free == endpoints_.end()) {
    endpoints_.push_back(nullptr);
    return static_cast<uint32_t>(endpoints_.size() - 1);
  }
  return static_cast<uint32_t>(free - endpoints_.begin());
}

std::unique_ptr<Endpoint> VerbsNic::create_endpoint(uint32_t depth, uint32_t receive_depth) {
  const auto most = static_cast<uint32_t>(attributes_.max_requests);
  if (!is_power_of_two(depth) || depth > most || !is_power_of_two(receive_depth) ||
      receive_depth > most)
    fail(ErrorKind::argument, text(), ": queues of ", depth, " requests and ", receive_depth,
         " receive buffers: expected powers of two up to ", most);
  const uint32_t id = take_slot();
  auto made = std::make_unique<VerbsEndpoint>(*this, id, depth, receive_depth);
  endpoints_[id] = made.get();
  return made;
}

SharedQueue& VerbsNic::reserve(uint32_t entries) {
  for (SharedQueue& queue : queues_) {
    if (queue.room < entries) continue;
    queue.room -= entries;
    return queue;
  }
  const auto most = static_cast<uint32_t>(attributes_.max_completions);
  if (entries > most)
    fail(ErrorKind::init, text(), ": a queue pair with ", entries,
         " requests and receive buffers: its completion queues hold at most ", most,
         "; lower RAILSHMEM_QUEUE_DEPTH");
  const uint32_t size = std::max(entries, std::min(kQueueEntries, most));
  SharedQueue made;
  made.queue = OwnedQueue(
      library_, library_->create_cq(context_.get(), static_cast<int>(size), nullptr, nullptr, 0));
  if (made.queue.get() == nullptr)
    fail(ErrorKind::init, text(), ": no completion queue of ", size, " entries: ", errno_text());
  made.room = size - entries;
  queues_.push_back(std::move(made));
  return queues_.back();
}

// Its queue pair is gone, but its completions may still lie in the queue.
void VerbsNic::forget(VerbsEndpoint& endpoint) {
  endpoints_[endpoint.id()] = nullptr;
  if (endpoint.has_completions)
    completed_.erase(std::find(completed_.begin(), completed_.end(), &endpoint));
  SharedQueue& queue = endpoint.queue();
  look(queue);
  queue.awaited -= endpoint.awaited();
  queue.room += endpoint.reserved();
}

void VerbsNic::list_completions(VerbsEndpoint& endpoint) {
  if (endpoint.has_completions) return;
  endpoint.has_completions = true;
  completed_.push_back(&endpoint);
}

void VerbsNic::look(SharedQueue& queue) {
  WorkCompletion batch[kBatch];
  int count = kBatch;
  while (count == static_cast<int>(kBatch)) {
    count = context_->ops.poll_cq(queue.queue.get(), kBatch, batch);
    for (int i = 0; i < count; ++i) {
      VerbsEndpoint* endpoint = endpoints_[batch[i].id >> 32];
      if (endpoint != nullptr) endpoint->take_in(batch[i]);
    }
  }
  if (count >= 0) return;
  for (VerbsEndpoint* endpoint : endpoints_)
    if (endpoint != nullptr && &endpoint->queue() == &queue)
      endpoint->abandon(Status::local_operation);
}

std::size_t VerbsNic::poll(Completion* out, std::size_t room) {
  for (SharedQueue& queue : queues_)
    if (queue.awaited > 0) look(queue);
  std::size_t count = 0;
  while (count < room && !completed_.empty()) {
    VerbsEndpoint* endpoint = completed_.front();
    if (endpoint->yield(&out[count])) {
      ++count;
    } else {
      endpoint->has_completions = false;
      completed_.pop_front();
    }
  }
  return count;
}

bool VerbsNic::progress() {
  if (++rounds_ % kRoundsBetweenEvents == 0) hear();
  return false;
}

void VerbsNic::hear() {
  Event event{};
  while (library_->get_async_event(context_.get(), &event) == 0) {
    // First of all: what it names cannot be destroyed before.
    Event seen = event;
    library_->ack_async_event(&seen);
    heed(event);
  }
}

void VerbsNic::heed(const Event& event) {
  for (VerbsEndpoint* endpoint : endpoints_) {
    if (endpoint == nullptr) continue;
    switch (event.kind) {
      case EventKind::queue_error:
        if (endpoint->queue().queue.get() == event.queue)
          endpoint->abandon(Status::local_operation);
        break;
      case EventKind::pair_fatal:
        if (endpoint->pair() == event.pair) endpoint->end(Status::local_operation);
        break;
      case EventKind::pair_request_error:
      case EventKind::pair_access_error:
        // What the peer asked for failed here, and that has ended its end too.
        if (endpoint->pair() == event.pair) endpoint->end(Status::peer_unreachable);
        break;
      case EventKind::device_fatal:
        endpoint->abandon(Status::peer_unreachable);
        break;
      case EventKind::port_error:
        if (event.port == int{port_.number}) endpoint->end(Status::peer_unreachable);
        break;
    }
  }
}

}  // namespace railshmem::nic::verbs
