#include "shmem/api/peer_watch.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/shmem/wait.hpp"

namespace railshmem {
namespace {

// A descriptor that becomes readable when the process ends, also while it is a zombie; glibc of
// older systems has no wrapper.
FileDescriptor open_process(int pid) {
#if defined(SYS_pidfd_open)
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
  return FileDescriptor();
#endif
}

}  // namespace

void PeerWatch::start(const std::vector<std::pair<int, SegmentHandle>>& peers,
                      device::StopRecord* record) {
  for (const auto& [pe, handle] : peers) {
    if (handle.pid == ::getpid()) continue;
    FileDescriptor process = open_process(handle.pid);
    // Checked after opening: the pid could have been reused, or belong to another process
    // namespace.
    if (process.valid() && HostSegment::owner_visible(handle))
      peers_.emplace_back(pe, std::move(process));
  }
  if (peers_.empty()) return;
  watching_ = true;
  stop_event_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, record] { run(record); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void PeerWatch::run(device::StopRecord* record) {
  pthread_setname_np(pthread_self(), "rsh-watch");
  std::vector<pollfd> polled{{stop_event_.get(), POLLIN, 0}};
  for (const auto& peer : peers_) polled.push_back({peer.second.get(), POLLIN, 0});
  while (::poll(polled.data(), polled.size(), -1) < 0) {
  }
  if (polled[0].revents != 0) return tell(-1);
  for (std::size_t i = 1; i < polled.size(); ++i)
    if (polled[i].revents != 0) {
      device::stop_with(
          record, device::Stop::peer_lost,
          {device::Waiting::nothing, peers_[i - 1].first, -1, 0, 0, device::kNoWord, 0, 0, 0, 0});
      return tell(peers_[i - 1].first);
    }
}

void PeerWatch::tell(int lost) {
  const std::lock_guard<std::mutex> held(mutex_);
  watching_ = false;
  lost_ = lost;
  told_.notify_all();
}

int PeerWatch::wait_for_loss() {
  std::unique_lock<std::mutex> held(mutex_);
  told_.wait(held, [this] { return !watching_; });
  return lost_;
}

void PeerWatch::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  // An eventfd write of 1 fails only when the counter is full, and then poll() wakes as well.
  if (::write(stop_event_.get(), &one, sizeof one) < 0) {
  }
  thread_.join();
  peers_.clear();
}

}  // namespace railshmem
