// Holds a robust, process-shared mutex. When its last holder was killed, the next one goes on: what
// the mutex protects is valid after every single step.
#pragma once

#include <pthread.h>

#include <cerrno>

namespace railshmem::nic::emulated {

class RobustLock {
 public:
  explicit RobustLock(pthread_mutex_t& mutex) : mutex_(mutex) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~RobustLock() { pthread_mutex_unlock(&mutex_); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace railshmem::nic::emulated
