// The symmetric memory of one handle of an ExpertParallel: one block, carved into what the kernels
// use.
#pragma once

#include <cstddef>
#include <memory>

#include "ep/config.hpp"
#include "ep/node_map.hpp"
#include "shmem/api/runtime.hpp"

namespace railshmem::ep {

class SymmetricBuffers {
 public:
  // Collective. Throws Error(heap_exhausted), naming what was needed.
  SymmetricBuffers(std::shared_ptr<Runtime> runtime, const Config& config, const NodeMap& nodes);
  SymmetricBuffers(const SymmetricBuffers&) = delete;
  SymmetricBuffers& operator=(const SymmetricBuffers&) = delete;
  // Freeing is collective and destruction is not: without free() the block stays until the runtime
  // ends.
  ~SymmetricBuffers() = default;

  // Collective.
  void free();

  const device::ep::Buffers& view() const { return view_; }
  // [max_tokens] rows of the combine type; null where the process can allocate as well.
  void* sums() const { return sums_; }
  // True when some of [address, address + bytes) will be overwritten by a dispatch.
  bool receives_into(const void* address, uint64_t bytes) const;
  // True when some of them lie in these buffers at all.
  bool holds(const void* address, uint64_t bytes) const;

 private:
  std::shared_ptr<Runtime> runtime_;
  void* block_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t received_bytes_ = 0;  // from the start of the block
  char* sums_ = nullptr;
  device::ep::Buffers view_;
};

}  // namespace railshmem::ep
