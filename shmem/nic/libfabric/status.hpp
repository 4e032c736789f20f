// What libfabric's errors mean.
#pragma once

#include "shmem/nic/nic.hpp"

namespace railshmem::nic::libfabric {

// Not an error of libfabric's: no region holds the local bytes of a request.
constexpr int kNoSuchLocalMemory = -1000;

// `error`: a positive number, of a completion or of a refused call.
Status status_of(int error);

}  // namespace railshmem::nic::libfabric
