// Symmetric memory for torch's allocator: the functions of C that CUDAPluggableAllocator calls, and
// the end of what they gave. railshmem/torch_pool.py is what people use.
#include <sys/types.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "python/bindings/bindings.hpp"
#include "shmem/api/meetings.hpp"

namespace railshmem::python {
namespace {

// torch splits what it gets at multiples of 512 bytes and counts on their alignment.
constexpr std::size_t kAlignment = 4096;

// What torch has got. Freeing is collective in the heap, but tensors end whenever Python lets them,
// so a block that torch gave back waits for the others (give_back).
class TorchBlocks {
 public:
  void add(void* address, std::shared_ptr<Runtime> runtime) {
    const std::lock_guard<std::mutex> held(mutex_);
    blocks_[address] = {++allocated_, runtime.get(), std::move(runtime)};
  }
  // From here on the block no longer keeps its heap.
  void release(void* address) {
    std::shared_ptr<Runtime> last;  // ends outside of the lock
    const std::lock_guard<std::mutex> held(mutex_);
    const auto found = blocks_.find(address);
    if (found != blocks_.end()) last = std::move(found->second.keeps);
  }
  uint64_t in_use(const Runtime& runtime) {
    const std::lock_guard<std::mutex> held(mutex_);
    uint64_t count = 0;
    for (const auto& [address, block] : blocks_)
      count += block.of == &runtime && block.keeps != nullptr;
    return count;
  }
  // Of a runtime, in the order in which they were allocated: the same on all PEs.
  std::vector<void*> take_all(const Runtime& runtime) {
    const std::lock_guard<std::mutex> held(mutex_);
    std::vector<std::pair<uint64_t, void*>> found;
    for (const auto& [address, block] : blocks_)
      if (block.of == &runtime) found.emplace_back(block.number, address);
    std::sort(found.begin(), found.end());
    std::vector<void*> out;
    for (const auto& [number, address] : found) {
      blocks_.erase(address);
      out.push_back(address);
    }
    return out;
  }

 private:
  struct Block {
    uint64_t number;
    const Runtime* of;
    std::shared_ptr<Runtime> keeps;  // null once torch has given it back
  };
  std::mutex mutex_;
  uint64_t allocated_ = 0;
  std::map<void*, Block> blocks_;
};

// Of the process, like the default runtime: torch passes no context to the functions it calls.
TorchBlocks& torch_blocks() {
  static TorchBlocks blocks;
  return blocks;
}

void* allocate_for_torch(std::size_t bytes, int device) {
  const std::shared_ptr<Runtime> runtime = find_default_runtime();
  if (!runtime) fail(ErrorKind::argument, "torch_pool: shmem_init has not been called");
  if (runtime->gpu() == nullptr || runtime->gpu()->site().device != device)
    fail(ErrorKind::argument, "torch_pool: ", bytes, " bytes asked for GPU ", device, ", but PE ",
         runtime->my_pe(), " uses ",
         runtime->gpu() == nullptr ? std::string("none")
                                   : text("GPU ", runtime->gpu()->site().device));
  std::optional<HookScope> released;  // torch may or may not have released the interpreter
  if (PyGILState_Check() != 0) released.emplace();
  void* address = runtime->malloc(bytes, kAlignment);
  torch_blocks().add(address, runtime);
  return address;
}

// Collective.
void give_back(Runtime& runtime) {
  uint64_t in_use = torch_blocks().in_use(runtime);
  const HookScope released;
  runtime.meetings().merge(*runtime.world(), &in_use, sizeof in_use, [&](const char* other) {
    in_use = std::max(in_use, *reinterpret_cast<const uint64_t*>(other));
  });
  if (in_use > 0)
    fail(ErrorKind::argument, "torch_pool: up to ", in_use,
         " blocks of a PE still hold tensors; let go of all of them, on every PE, first");
  for (void* address : torch_blocks().take_all(runtime)) runtime.free(address);
}

}  // namespace

void bind_torch_pool(py::module_& m) {
  py::reinterpret_borrow<RuntimeClass>(m.attr("Runtime"))
      .def("free_torch_blocks", &give_back,
           "Collective: gives back what torch_pool took. Raises ArgumentError on every PE while "
           "tensors use it.");
}

}  // namespace railshmem::python

// What torch calls. An error is thrown through it and becomes a RuntimeError of Python.
extern "C" {
__attribute__((visibility("default"))) void* railshmem_torch_alloc(ssize_t bytes, int device,
                                                                   void* /* stream */) {
  return railshmem::python::allocate_for_torch(static_cast<std::size_t>(bytes), device);
}
__attribute__((visibility("default"))) void railshmem_torch_free(void* address, ssize_t /* bytes */,
                                                                 int /* device */,
                                                                 void* /* stream */) {
  railshmem::python::torch_blocks().release(address);
}
}
