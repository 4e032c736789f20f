// What one endpoint has in libfabric's hands. Its memory outlives the endpoint for as long as
// libfabric may look at it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shmem/nic/nic.hpp"

namespace railshmem::nic::libfabric {

class LibfabricEndpoint;
struct Operations;

// The context of one call; comes back with its completion.
struct Operation {
  void* provider[8] = {};  // for its own use, while in flight (FI_CONTEXT2)
  Operations* owner = nullptr;
  bool receives = false;
  bool in_flight = false;
  uint64_t index = 0;  // on its endpoint
};

struct Request : Operation {
  WorkRequest asked;
  Status status = Status::ok;
  bool done = false;
};

struct Receive : Operation {
  uint64_t address = 0;
  uint32_t lkey = 0;
  uint32_t bytes = 0;
};

// Bytes a WRITE or a SEND may carry inside its entry: they are copied into the entry's slot.
constexpr uint32_t kInlineBytes = 64;

struct Operations {
  Operations(LibfabricEndpoint* endpoint_, uint32_t depth, uint32_t receive_depth)
      : endpoint(endpoint_),
        requests(depth),
        receives(receive_depth),
        inlined(std::make_unique<char[]>(std::size_t{depth} * kInlineBytes)) {
    for (Request& request : requests) request.owner = this;
    for (Receive& receive : receives) {
      receive.owner = this;
      receive.receives = true;
    }
  }

  char* inlined_of(uint64_t slot) const { return inlined.get() + slot * kInlineBytes; }

  LibfabricEndpoint* endpoint;  // null: it has gone
  std::vector<Request> requests;
  std::vector<Receive> receives;
  std::unique_ptr<char[]> inlined;
  uint32_t in_flight = 0;
};

}  // namespace railshmem::nic::libfabric
