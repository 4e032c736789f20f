#include "shmem/api/gpu_ring.hpp"

#include <vector>

#include "kernels/shmem/wait.hpp"

namespace railshmem {

bool GpuRing::quiet(const device::DeviceContext& host) {
  device::DeviceContext kernels = {};
  producers_.join(kernels);
  std::vector<device::Lane> lanes(consumer_.shape.all_lanes());
  gpu_.look(lanes.data(), kernels.lanes, lanes.size() * sizeof lanes.front());
  for (std::size_t index = 0; index < lanes.size(); ++index) {
    const device::LaneProgress& progress = consumer_.progress[index];
    const uint64_t posted = lanes[index].posted;
    // Acquire pairs with the progress thread's release: results and data read back are there.
    uint64_t completed = arch::load_acquire(&progress.completed);
    if (completed >= posted) continue;
    const auto pe = static_cast<int>(index / consumer_.shape.lanes);
    device::Waiter waiter(&host, device::Waiting::quiet, pe, device::kNoWord, posted,
                          arch::load_relaxed(&progress.rail));
    for (; completed < posted; completed = arch::load_acquire(&progress.completed))
      if (!waiter.again(completed)) return false;
  }
  return true;
}

}  // namespace railshmem
