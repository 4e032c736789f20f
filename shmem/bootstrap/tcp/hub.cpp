#include "shmem/bootstrap/tcp/hub.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

#include "shmem/base/error.hpp"
#include "shmem/bootstrap/tcp/job_server.hpp"

namespace railshmem::tcp {

Hub::Hub(const std::string& interface)
    : stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), pid_(::getpid()) {
  if (!stop_event_.valid()) fail(ErrorKind::init, "no event for the hub: ", errno_text());
  Listener listener = listen_on(interface);
  id_ = {listener.port, random_secret(), listener.addresses};
  auto server =
      std::make_shared<JobServer>(id_.secret, std::move(listener.socket), stop_event_.get());
  // Signals are for the program's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::make_unique<std::thread>([server] {
    pthread_setname_np(pthread_self(), "rsh-hub");
    server->run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Hub::~Hub() {
  if (pid_ != ::getpid()) {
    // A copy made by fork(), where the thread does not exist: it can be neither joined nor
    // detached.
    static_cast<void>(thread_.release());
    return;
  }
  const uint64_t one = 1;
  // A write of 1 fails only when the counter is full, and then poll() wakes as well.
  if (::write(stop_event_.get(), &one, sizeof one) < 0) {
  }
  thread_->join();
}

}  // namespace railshmem::tcp
