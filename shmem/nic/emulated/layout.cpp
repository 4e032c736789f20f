#include "shmem/nic/emulated/layout.hpp"

#include <linux/futex.h>

#include "kernels/arch/arch.hpp"
#include "shmem/base/error.hpp"

namespace railshmem::nic::emulated {
namespace {

// A process that is killed while it holds the mutex does not stop the others.
void make_robust(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int code = pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (code != 0) fail(ErrorKind::init, "cannot make a mutex that processes share: error ", code);
}

}  // namespace

void open_header(SharedHeader& header) {
  make_robust(&header.driver);
}

// The word of a robust mutex is part of the kernel's interface (robust_list); where glibc keeps it
// inside of its type has been the same since it has it.
bool driver_died(const SharedHeader& header) {
  return (static_cast<uint32_t>(arch::load_relaxed(&header.driver.__data.__lock)) &
          FUTEX_OWNER_DIED) != 0;
}

void open_nic(SharedNic& nic) {
  make_robust(&nic.mutex);
  // The second lap: its owner bit is 1, so zeroed entries are not taken for completions.
  nic.arrived = kReceiveCqEntries;
  arch::store_release(&nic.alive, 1u);  // nobody looks before it has the address; paired there
}

}  // namespace railshmem::nic::emulated
