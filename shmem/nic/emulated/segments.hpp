// Segments by handle, mapped once per process however many NICs use them. Where PEs share a
// process, an importer co-owns the creator's segment: it stays mapped until all have let go.
#pragma once

#include <memory>

#include "shmem/memory/host_segment.hpp"

namespace railshmem::nic::emulated {

// Both throw Error(init) with the reason.
std::shared_ptr<HostSegment> create_segment(const char* label, std::size_t bytes);
std::shared_ptr<HostSegment> import_segment(const SegmentHandle& handle);

}  // namespace railshmem::nic::emulated
