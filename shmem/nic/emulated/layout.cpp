#include "shmem/nic/emulated/layout.hpp"

#include "shmem/base/error.hpp"

namespace railshmem::nic::emulated {

void open_nic(SharedNic& nic) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  // A peer killed while it holds the mutex must not stop the others.
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int code = pthread_mutex_init(&nic.mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (code != 0) fail(ErrorKind::init, "cannot make a mutex that processes share: error ", code);
  // The second lap: its owner bit is 1, so zeroed entries are not taken for completions.
  nic.arrived = kReceiveCqEntries;
  arch::store_release(&nic.alive, 1u);  // nobody looks before it has the address; paired there
}

}  // namespace railshmem::nic::emulated
