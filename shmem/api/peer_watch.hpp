// Notices at once when another process of the job on this host is gone, and ends this PE's waits.
// MPI alone would leave the others waiting for ever. The thread sleeps in the kernel until that
// happens.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/shmem/context.hpp"
#include "shmem/base/file_descriptor.hpp"
#include "shmem/memory/host_segment.hpp"

namespace railshmem {

class PeerWatch {
 public:
  PeerWatch() = default;
  ~PeerWatch() { stop(); }

  // Watches the owners of these segments (PE, its heap's handle) that are other processes seen from
  // here; `record` is stopped with peer_lost when one ends.
  void start(const std::vector<std::pair<int, SegmentHandle>>& peers, device::StopRecord* record);
  void stop();

  // Waits until a watched process has ended and returns its PE; -1 when nothing is watched any
  // more.
  int wait_for_loss();

 private:
  void run(device::StopRecord* record);
  void tell(int lost);

  std::vector<std::pair<int, FileDescriptor>> peers_;
  FileDescriptor stop_event_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable told_;
  bool watching_ = false;
  int lost_ = -1;
};

}  // namespace railshmem
