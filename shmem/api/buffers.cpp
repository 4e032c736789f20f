// Users' own memory: registered for this PE's NICs, or adopted into the symmetric heap.
#include <vector>

#include "shmem/api/runtime_parts.hpp"

namespace railshmem {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

void Runtime::register_buffer(void* address, std::size_t bytes, std::shared_ptr<void> owner) {
  require_usable();
  Parts& parts = *parts_;
  if (address == nullptr || bytes == 0)
    fail(ErrorKind::argument, "register_buffer of ", bytes, " bytes at ", address, ": nothing");
  if (in_heap(address, 0))
    fail(ErrorKind::argument, "register_buffer of ", bytes, " bytes at ", address,
         ": the symmetric heap is registered already");
  if (parts.buffers.again(address, bytes)) return;
  if (parts.buffers.overlaps(address, bytes))
    fail(ErrorKind::argument, "register_buffer of ", bytes, " bytes at ", address,
         ": overlaps a buffer of another range");
  std::vector<uint32_t> lkeys;
  if (parts.provider) {
    try {
      for (const auto& nic : parts.provider->nics()) {
        lkeys.resize(std::max<std::size_t>(lkeys.size(), nic->rail() + 1));
        lkeys[nic->rail()] = nic->register_memory(address, bytes, nic::kAccessLocal, nullptr).lkey;
      }
    } catch (const Error&) {  // all or nothing
      parts.deregister(lkeys);
      throw;
    }
  }
  parts.buffers.add(address, bytes, std::move(lkeys), std::move(owner));
}

void Runtime::unregister_buffer(void* address) {
  require_usable();
  Parts& parts = *parts_;
  if (!device::quiet(&parts.context, device::all_lanes(&parts.context))) parts.raise_stopped();
  const RegisteredBuffers::Removed removed = parts.buffers.remove(address);
  if (!removed.found)
    fail(ErrorKind::argument, "unregister_buffer of ", address,
         ": nothing registered starts there");
  parts.deregister(removed.lkeys);
}

void Runtime::Parts::deregister(const std::vector<uint32_t>& lkeys) {
  for (std::size_t rail = 0; rail < lkeys.size(); ++rail)
    for (const auto& nic : provider->nics())
      if (nic->rail() == rail && lkeys[rail] != 0) nic->deregister_memory({lkeys[rail], 0});
}

void* Runtime::register_symmetric(void* address, std::size_t bytes, std::shared_ptr<void> owner) {
  require_usable();
  Parts& parts = *parts_;
  const auto at = reinterpret_cast<uint64_t>(address);
  if (bytes == 0 || at % kPage != 0 || bytes % kPage != 0)
    fail(ErrorKind::argument, "register_symmetric of ", bytes, " bytes at ", address,
         ": address and size must be multiples of the page size, ", kPage);
  if (in_heap(address, 0))
    fail(ErrorKind::argument, "register_symmetric at ", address, ": it is in the heap already");
  if (parts.memory.on_gpu())
    fail(ErrorKind::argument, "register_symmetric of ", bytes, " bytes at ", address,
         ": the heap is in GPU memory, which cannot take the place of memory that exists; allocate "
         "from the heap (shmem_malloc, railshmem.torch_pool) instead");
  void* block = malloc(bytes, kPage);  // all agree on the size, or all raise
  std::string error;
  try {
    parts.heap.host().lay_over(address, device::offset_of(&parts.context, block), bytes);
    parts.adopted[block] = {address, std::move(owner)};
  } catch (const Error& caught) {
    error = caught.what();
  }
  // Nobody puts to a block whose owner could not lay it where its caller looks.
  uint64_t failures = error.empty() ? 0 : 1;
  parts.meetings.merge(*world(), &failures, sizeof failures, [&](const char* other) {
    failures |= *reinterpret_cast<const uint64_t*>(other);
  });
  if (failures == 0) return block;
  if (error.empty()) {
    HostSegment::take_back(address, bytes);
    parts.adopted.erase(block);
    error = "another PE could not map the heap over its buffer";
  }
  free(block);
  fail(ErrorKind::argument, "register_symmetric of ", bytes, " bytes at ", address, ": ", error);
}

void Runtime::unregister_symmetric(void* symmetric) {
  require_usable();
  Parts& parts = *parts_;
  const auto found = parts.adopted.find(symmetric);
  if (found == parts.adopted.end())
    fail(ErrorKind::argument, "unregister_symmetric of ", symmetric,
         ": nothing registered symmetrically starts there");
  barrier_all();  // what peers put is in place
  const auto bytes = parts.heap.size_of(symmetric);
  HostSegment::take_back(found->second.address, *bytes);
  parts.adopted.erase(found);
  free(symmetric);
}

}  // namespace railshmem
