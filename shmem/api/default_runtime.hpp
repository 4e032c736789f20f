// The one process-wide state of the library: the runtime that scripts and the shmem_ functions use.
#pragma once

#include <memory>

#include "shmem/api/runtime.hpp"

namespace railshmem {

// Null ends the default runtime's reign; it lives on while others hold it.
void set_default_runtime(std::shared_ptr<Runtime> runtime);
// Null where there is none.
std::shared_ptr<Runtime> find_default_runtime();
// Throws Error(argument) where shmem_init has not been called.
Runtime& default_runtime();

}  // namespace railshmem
