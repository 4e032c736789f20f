// Segments by handle, mapped once per process however many NICs use them. Where PEs share a
// process, an importer co-owns the creator's segment: it stays mapped until all have let go.
#pragma once

#include <memory>

#include "shmem/memory/segment.hpp"

namespace railshmem::nic::emulated {

// Both throw Error(init) with the reason. `site`: of this process's GPU, or null.
std::shared_ptr<Segment> create_segment(const char* label, std::size_t bytes);
std::shared_ptr<Segment> import_segment(const SegmentHandle& handle, const gpu::Site* site);

}  // namespace railshmem::nic::emulated
