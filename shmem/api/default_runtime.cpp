#include "shmem/api/default_runtime.hpp"

namespace railshmem {
namespace {

std::shared_ptr<Runtime>& slot() {
  static std::shared_ptr<Runtime> runtime;
  return runtime;
}

}  // namespace

void set_default_runtime(std::shared_ptr<Runtime> runtime) {
  slot() = std::move(runtime);
}

std::shared_ptr<Runtime> find_default_runtime() {
  return slot();
}

Runtime& default_runtime() {
  if (!slot()) fail(ErrorKind::argument, "shmem_init has not been called");
  return *slot();
}

}  // namespace railshmem
