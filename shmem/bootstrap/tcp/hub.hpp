// The meeting point of one job over TCP: a thread in the process that made the job's id (a PE, or
// the program that starts them). It checks who comes, carries the collectives, and tells everybody
// when a process ends or aborts the job.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "shmem/base/file_descriptor.hpp"
#include "shmem/bootstrap/tcp/id.hpp"

namespace railshmem::tcp {

class Hub {
 public:
  // Listens from now on; `interface` as in listen_on(). Throws Error(init).
  explicit Hub(const std::string& interface = "");
  // Passes on what it has still to say, a few seconds at most. Processes whose job is not over take
  // the end of their hub for the end of the job.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  const JobId& id() const { return id_; }

 private:
  JobId id_;
  FileDescriptor stop_event_;
  int pid_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace railshmem::tcp
