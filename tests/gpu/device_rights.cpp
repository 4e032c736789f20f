#include "tests/gpu/device_rights.hpp"

#include <sys/mman.h>

namespace railshmem::standin {
namespace {

// -1: there is none. Threads that were there before are denied it by the kernel's default.
int key() {
#if defined(PKEY_DISABLE_ACCESS)
  static const int made = ::pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return made;
#else
  return -1;
#endif
}

}  // namespace

bool give_to_gpu(void* at, std::size_t bytes) {
#if defined(PKEY_DISABLE_ACCESS)
  if (key() >= 0) return ::pkey_mprotect(at, bytes, PROT_READ | PROT_WRITE, key()) == 0;
#endif
  return ::mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0;
}

void become_gpu() {
#if defined(PKEY_DISABLE_ACCESS)
  if (key() >= 0) ::pkey_set(key(), 0);
#endif
}

}  // namespace railshmem::standin
