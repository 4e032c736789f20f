#include "shmem/nic/emulated/segments.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace railshmem::nic::emulated {
namespace {

using Identity = std::pair<uint64_t, uint64_t>;  // device, inode

struct Table {
  std::mutex mutex;
  std::map<Identity, std::weak_ptr<Segment>> segments;
};

Table& table() {
  static Table only;
  return only;
}

void drop_unused(Table& at) {
  for (auto it = at.segments.begin(); it != at.segments.end();)
    it = it->second.expired() ? at.segments.erase(it) : std::next(it);
}

}  // namespace

std::shared_ptr<Segment> create_segment(const char* label, std::size_t bytes) {
  auto made = std::make_shared<Segment>(Segment::create(label, bytes));
  const SegmentHandle handle = made->handle();
  std::lock_guard<std::mutex> lock(table().mutex);
  table().segments[{handle.device, handle.inode}] = made;
  return made;
}

std::shared_ptr<Segment> import_segment(const SegmentHandle& handle, const gpu::Site* site) {
  std::lock_guard<std::mutex> lock(table().mutex);
  const Identity identity{handle.device, handle.inode};
  if (auto known = table().segments[identity].lock()) return known;
  drop_unused(table());
  auto made = std::make_shared<Segment>(Segment::import(handle, site));
  table().segments[identity] = made;
  return made;
}

}  // namespace railshmem::nic::emulated
