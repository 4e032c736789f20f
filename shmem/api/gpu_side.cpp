#include "shmem/api/gpu_side.hpp"

#include <fstream>
#include <iterator>

namespace railshmem {
namespace {

gpu::Address address_of(const void* at) {
  return reinterpret_cast<gpu::Address>(at);
}

}  // namespace

KernelSource kernels_from(const std::string& folder) {
  return [folder](const std::string& name, const std::string& architecture) {
    if (folder.empty())
      fail(ErrorKind::gpu, "a C++ program finds the kernels for ", architecture,
           " in RAILSHMEM_KERNELS: a folder that 'railshmem compile --to FOLDER' fills");
    const std::string path = text(folder, "/", name, ".", architecture);
    std::ifstream file(path, std::ios::binary);
    std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file.good() && image.empty())
      fail(ErrorKind::gpu, "no kernels in ", path,
           ": fill the folder with 'railshmem compile --arch ", architecture, " --to ", folder,
           "'");
    return image;
  };
}

GpuSide::GpuSide(const gpu::Site& site, KernelSource kernels)
    : site_(site),
      facts_(site.driver->facts(site.device)),
      source_(std::move(kernels)),
      work_(site, false, true),
      looks_(site, true, true),
      results_(site, 4096),
      stop_(site, sizeof(device::StopRecord)),
      claim_(site, 256),
      context_(site, sizeof(device::DeviceContext)) {}

GpuSide::~GpuSide() {
  try {
    use();
    for (const auto& module : modules_) site_.driver->unload(module.second);
  } catch (const Error&) {
    return;  // the driver is at its end, and its modules with it
  }
}

// ---- what CPU code does ------------------------------------------------------------------------

void GpuSide::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard<std::mutex> held(mutex_);
  use();
  site_.driver->copy(address_of(to), address_of(from), bytes, work_.get());
  site_.driver->synchronize(work_.get());
}

void GpuSide::fill(void* at, unsigned char value, std::size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard<std::mutex> held(mutex_);
  use();
  site_.driver->fill(address_of(at), value, bytes, work_.get());
  site_.driver->synchronize(work_.get());
}

void GpuSide::copy_and_set(void* to, const void* from, std::size_t bytes, uint64_t* at,
                           uint64_t value) {
  const std::lock_guard<std::mutex> held(mutex_);
  use();
  if (bytes > 0) site_.driver->copy(address_of(to), address_of(from), bytes, work_.get());
  auto* word = results_.as<uint64_t>();
  *word = value;
  site_.driver->copy(address_of(at), address_of(word), sizeof value, work_.get());
  site_.driver->synchronize(work_.get());
}

void GpuSide::copy_all(const std::vector<Piece>& pieces) {
  const std::lock_guard<std::mutex> held(mutex_);
  use();
  for (const Piece& piece : pieces)
    if (piece.bytes > 0)
      site_.driver->copy(address_of(piece.to), address_of(piece.from), piece.bytes, work_.get());
  site_.driver->synchronize(work_.get());
}

void GpuSide::look(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard<std::mutex> held(mutex_);
  use();
  site_.driver->copy(address_of(to), address_of(from), bytes, looks_.get());
  site_.driver->synchronize(looks_.get());
}

uint64_t GpuSide::atomic(device::AtomicOp op, void* word, unsigned width, uint64_t operand,
                         uint64_t compare, int pe) {
  const gpu::Function function = kernel("core", "rsh_atomic");
  const std::lock_guard<std::mutex> held(mutex_);
  auto* result = results_.as<uint64_t>() + 8;  // a line of its own
  *result = 0;
  gpu::Launch how;
  how.stream = work_.get();
  launch(function, how, context(), static_cast<uint32_t>(op), word, static_cast<uint32_t>(width),
         operand, compare, static_cast<int32_t>(pe), static_cast<void*>(result));
  site_.driver->synchronize(work_.get());
  return *result;
}

// ---- kernels -----------------------------------------------------------------------------------

gpu::Function GpuSide::kernel(const std::string& module, const std::string& name) {
  const std::lock_guard<std::mutex> held(kernels_mutex_);
  use();
  auto found = modules_.find(module);
  if (found == modules_.end()) {
    const std::string image = source_(module, facts_.architecture);
    found = modules_.emplace(module, site_.driver->load(image.data())).first;
  }
  return site_.driver->function(found->second, name.c_str());
}

const int32_t* GpuSide::upload(const int32_t* numbers, int32_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof *numbers;
  tables_.emplace_back(site_, bytes);
  copy(tables_.back().as<void>(), numbers, bytes);
  return tables_.back().as<const int32_t>();
}

void GpuSide::make_context(const device::DeviceContext& host, uint64_t words,
                           const std::function<void(device::DeviceContext&)>& join) {
  const auto n_pes = static_cast<std::size_t>(host.n_pes);
  device::DeviceContext out = host;
  tables_.emplace_back(site_, n_pes * sizeof *host.peer_base);
  copy(tables_.back().as<void>(), host.peer_base, n_pes * sizeof *host.peer_base);
  out.peer_base = tables_.back().as<char* const>();
  tables_.emplace_back(site_, n_pes * sizeof *host.transport);
  copy(tables_.back().as<void>(), host.transport, n_pes * sizeof *host.transport);
  out.transport = tables_.back().as<const device::Transport>();

  device::Team world = *host.world;
  world.pes = upload(host.world->pes, host.world->n_pes);
  world.leaders = upload(host.world->leaders, host.world->n_nodes);
  world.locals = upload(host.world->locals, host.world->n_local);
  world.area = words;
  tables_.emplace_back(site_, sizeof *world.sequence);
  world.sequence = tables_.back().as<uint64_t>();
  tables_.emplace_back(site_, sizeof world);
  copy(tables_.back().as<void>(), &world, sizeof world);
  out.world = tables_.back().as<const device::Team>();

  out.lanes = nullptr;
  out.progress = nullptr;
  out.result_claims = nullptr;
  out.stop_claim = claim_.as<uint32_t>();
  out.rings = nullptr;
  out.result_slots = nullptr;
  out.n_result_slots = 0;
  out.result_hint = nullptr;
  out.stop = stop_.as<device::StopRecord>();
  out.trace = nullptr;
  out.driver = nullptr;
  if (join) join(out);
  copy(context_.as<void>(), &out, sizeof out);
}

void GpuSide::clear_stop() {
  stop() = {};
  fill(claim_.as<void>(), 0, sizeof(uint32_t));
}

}  // namespace railshmem
