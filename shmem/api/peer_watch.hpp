// Notices at once when another process of the job on this host is gone, or when the bootstrap has
// news from elsewhere, and ends this PE's waits. MPI alone would leave the others waiting for ever.
// The thread sleeps in the kernel until that happens.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/shmem/context.hpp"
#include "shmem/base/file_descriptor.hpp"
#include "shmem/bootstrap/bootstrap.hpp"
#include "shmem/memory/host_segment.hpp"

namespace railshmem {

class PeerWatch {
 public:
  PeerWatch() = default;
  ~PeerWatch() { stop(); }

  // Watches the owners of these segments (PE, its heap's handle) that are other processes seen from
  // here, and the bootstrap's news; `context` is stopped with peer_lost when a process ends, and
  // with aborted when a PE aborts the job.
  void start(const std::vector<std::pair<int, SegmentHandle>>& peers, Bootstrap& bootstrap,
             const device::DeviceContext& context);
  void stop();

  // Takes the first news that nobody has taken; waits up to `timeout_s`, then and after stop() the
  // answer is none.
  JobNews wait_for_news(double timeout_s);

 private:
  void run(Bootstrap& bootstrap, const device::DeviceContext& context);
  void tell(const device::DeviceContext& context, JobNews news);

  std::vector<std::pair<int, FileDescriptor>> peers_;
  FileDescriptor stop_event_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable told_;
  bool watching_ = false;
  std::deque<JobNews> told_news_;
};

}  // namespace railshmem
