#include "shmem/api/gpu_choice.hpp"

#include <vector>

#include "shmem/api/pe_card.hpp"
#include "shmem/base/error.hpp"
#include "shmem/topology/host_identity.hpp"

namespace railshmem {
namespace {

// What each PE tells of the GPUs it may see.
struct Offer {
  DeviceKind kind = DeviceKind::cpu;  // cuda or hip where it has any
  DeviceKind asked = DeviceKind::automatic;
  int32_t count = 0;
  FixedText<64> boot_id;
  FixedText<512> why_not;
};

// A GPU whose memory cannot be made in pieces, shared and mapped is no place for a heap.
void require_fit(gpu::Driver& driver, int count) {
  for (int device = 0; device < count; ++device) {
    const gpu::Facts facts = driver.facts(device);
    if (!facts.vmm)
      fail(ErrorKind::gpu, "GPU ", device, " (", facts.name,
           ") has no virtual memory management whose memory other processes can map");
    if (!facts.cooperative)
      fail(ErrorKind::gpu, "GPU ", device, " (", facts.name, ") has no cooperative launches");
  }
}

std::shared_ptr<gpu::Driver> open_driver(DeviceKind kind, const std::string& path, int32_t* count) {
  std::shared_ptr<gpu::Driver> driver =
      kind == DeviceKind::cuda ? gpu::load_cuda(path) : gpu::load_hip(path);
  *count = driver->device_count();
  if (*count == 0) fail(ErrorKind::gpu, "the ", driver->name(), " driver shows no GPU");
  require_fit(*driver, *count);
  return driver;
}

std::shared_ptr<gpu::Driver> look(const Settings& settings, Offer* offer) {
  std::string why;
  for (const DeviceKind kind : {DeviceKind::cuda, DeviceKind::hip}) {
    if (settings.device != DeviceKind::automatic && settings.device != kind) continue;
    try {
      auto driver = open_driver(kind, settings.gpu_driver, &offer->count);
      if (settings.gpu >= offer->count)
        fail(ErrorKind::gpu, "RAILSHMEM_GPU=", settings.gpu, " with only ", offer->count,
             " GPUs to see");
      offer->kind = kind;
      return driver;
    } catch (const Error& error) {
      why += (why.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  offer->why_not = why;
  return nullptr;
}

}  // namespace

GpuChoice choose_gpu(const Settings& settings, Bootstrap& bootstrap) {
  Offer mine;
  mine.asked = settings.device;
  mine.boot_id = boot_id();
  std::shared_ptr<gpu::Driver> driver;
  if (settings.device != DeviceKind::cpu) driver = look(settings, &mine);
  const std::vector<Offer> all = allgather(bootstrap, mine);

  const auto me = static_cast<std::size_t>(bootstrap.rank());
  int before = 0;  // PEs of this host in front of this one
  for (std::size_t pe = 0; pe < all.size(); ++pe) {
    // Different settings are named by the exchange of cards, which follows.
    if (all[pe].asked != mine.asked) return {std::nullopt, "the PEs ask for different devices"};
    if (pe < me && all[pe].boot_id.str() == mine.boot_id.str()) ++before;
  }
  if (settings.device == DeviceKind::cpu) return {std::nullopt, "RAILSHMEM_DEVICE=cpu"};
  for (std::size_t pe = 0; pe < all.size(); ++pe) {
    if (all[pe].kind == all.front().kind && all[pe].kind != DeviceKind::cpu) continue;
    const std::string why =
        text("PE ", pe, " has no ",
             settings.device == DeviceKind::automatic ? "GPU like the others"
                                                      : text(name_of(settings.device), " GPU"),
             ": ", all[pe].why_not.str());
    if (settings.device != DeviceKind::automatic)
      fail(ErrorKind::init, "RAILSHMEM_DEVICE=", name_of(settings.device), ": ", why);
    return {std::nullopt, why};
  }
  if (settings.gpu >= 0)
    return {gpu::Site{driver, settings.gpu}, text("RAILSHMEM_GPU=", settings.gpu)};
  return {gpu::Site{driver, before % mine.count},
          text("number ", before, " of this host's PEs, ", mine.count, " GPUs to see")};
}

}  // namespace railshmem
