// Who is in the job, and the few collectives that init needs. Implementations: an MPI communicator
// (python/railshmem/bootstrap.py, through mpi4py) and threads of one process (threads.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace railshmem {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective: every rank gives `bytes` bytes (the same number everywhere); `all` receives
  // size() * bytes of them, by rank. Ends within the bootstrap's timeout: Error(timeout) names the
  // ranks that did not come.
  virtual void allgather(const void* mine, std::size_t bytes, void* all) = 0;

  // Collective: returns when every rank has called it; bounded like allgather.
  virtual void barrier() = 0;

  // Ends the whole job with this exit code. May return (threads have no job to end).
  virtual void abort(int code, const std::string& why) = 0;
};

// Collective: one trivially copyable record per rank, by rank.
template <class Record>
std::vector<Record> allgather(Bootstrap& bootstrap, const Record& mine) {
  std::vector<Record> all(static_cast<std::size_t>(bootstrap.size()));
  bootstrap.allgather(&mine, sizeof mine, all.data());
  return all;
}

}  // namespace railshmem
