#include "shmem/api/peer_watch.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

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

void PeerWatch::start(const std::vector<std::pair<int, SegmentHandle>>& peers, Bootstrap& bootstrap,
                      const device::DeviceContext& context) {
  for (const auto& [pe, handle] : peers) {
    if (handle.pid == ::getpid()) continue;
    FileDescriptor process = open_process(handle.pid);
    // Checked after opening: the pid could have been reused, or belong to another process
    // namespace.
    if (process.valid() && HostSegment::owner_visible(handle))
      peers_.emplace_back(pe, std::move(process));
  }
  if (peers_.empty() && bootstrap.news_fd() < 0) return;
  watching_ = true;
  stop_event_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, &bootstrap, &context] { run(bootstrap, context); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void PeerWatch::run(Bootstrap& bootstrap, const device::DeviceContext& context) {
  pthread_setname_np(pthread_self(), "rsh-watch");
  auto known = JobNews::Kind::none;
  const auto hear = [&](JobNews news) {  // the first loss, and then at most that the job is aborted
    if (news.kind <= known) return;
    known = news.kind;
    tell(context, std::move(news));
  };
  while (known != JobNews::Kind::aborted) {
    // Negative descriptors are passed over.
    std::vector<pollfd> polled{{stop_event_.get(), POLLIN, 0}, {bootstrap.news_fd(), POLLIN, 0}};
    if (known == JobNews::Kind::none)
      for (const auto& peer : peers_) polled.push_back({peer.second.get(), POLLIN, 0});
    while (::poll(polled.data(), polled.size(), -1) < 0) {
    }
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0) hear(bootstrap.news());
    for (std::size_t i = 2; i < polled.size(); ++i)
      if (polled[i].revents != 0) hear({JobNews::Kind::lost, peers_[i - 2].first, 0, {}});
  }
}

void PeerWatch::tell(const device::DeviceContext& context, JobNews news) {
  const auto reason =
      news.kind == JobNews::Kind::aborted ? device::Stop::aborted : device::Stop::peer_lost;
  device::stop_with(&context, reason,
                    {device::Waiting::nothing, news.rank, -1, 0, 0, device::kNoWord, 0, 0, 0, 0});
  const std::lock_guard<std::mutex> held(mutex_);
  told_news_.push_back(std::move(news));
  told_.notify_all();
}

JobNews PeerWatch::wait_for_news(double timeout_s) {
  std::unique_lock<std::mutex> held(mutex_);
  const auto ended = [this] { return !told_news_.empty() || !watching_; };
  if (timeout_s < 1e8)
    told_.wait_for(held, std::chrono::duration<double>(timeout_s), ended);
  else  // for ever: the clock's own numbers would overflow
    told_.wait(held, ended);
  if (told_news_.empty()) return {};
  JobNews first = std::move(told_news_.front());
  told_news_.pop_front();
  return first;
}

void PeerWatch::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  // An eventfd write of 1 fails only when the counter is full, and then poll() wakes as well.
  if (::write(stop_event_.get(), &one, sizeof one) < 0) {
  }
  thread_.join();
  peers_.clear();
  const std::lock_guard<std::mutex> held(mutex_);
  watching_ = false;
  told_.notify_all();
}

}  // namespace railshmem
