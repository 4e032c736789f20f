// What one handle of an ExpertParallel stands for: buffers, and the dispatch that fills them.
#pragma once

#include <memory>

#include "ep/buffers.hpp"
#include "ep/routing.hpp"
#include "kernels/ep/dispatch.hpp"

namespace railshmem::ep {

// How far a slot's dispatch has come. `sent` and `combining` wait for their second half.
enum class Phase : uint8_t { unused, sent, received, combining, combined };

inline const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::unused:
      return "has not been sent";
    case Phase::sent:
      return "has been sent and not received: call dispatch_recv first";
    case Phase::received:
      return "has been received, and no combine_send was called for it";
    case Phase::combining:
      return "is being combined: call combine_recv first";
    case Phase::combined:
      return "was combined already";
  }
  return "is in no known phase";
}

struct Slot {
  // Collective.
  Slot(const std::shared_ptr<Runtime>& runtime, const Config& config, const NodeMap& nodes)
      : buffers(runtime, config, nodes), routing(*runtime, config, nodes, buffers.view()) {}

  SymmetricBuffers buffers;
  Routing routing;
  uint64_t dispatch = 0;  // the last, counted through the ExpertParallel
  int64_t tokens = 0;     // that it sent
  Phase phase = Phase::unused;
  device::ep::Delivery delivery{};  // of the dispatch that has been sent
  bool again = false;               // whether that has the routing of the one before
};

}  // namespace railshmem::ep
