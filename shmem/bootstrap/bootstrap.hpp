// Who is in the job, and the few collectives that init needs. Implementations: an MPI communicator
// (python/railshmem/bootstrap.py, through mpi4py), TCP with an id that somebody shared
// (tcp/tcp_bootstrap.hpp), and threads of one process (threads.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace railshmem {

// What happened to the job outside of its collectives.
struct JobNews {
  enum class Kind {
    none,
    lost,     // the process of `rank` has ended; rank -1: the one that holds the job together
    aborted,  // `rank` ends the job with exit code `code`, and says why
  };
  Kind kind = Kind::none;
  int rank = -1;
  int code = 0;
  std::string why;
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective: every rank gives `bytes` bytes (the same number everywhere); `all` receives
  // size() * bytes of them, by rank. Ends within the bootstrap's timeout: Error(timeout) names the
  // ranks that did not come.
  virtual void allgather(const void* mine, std::size_t bytes, void* all) = 0;

  // Collective: `mine` holds size() pieces of `bytes` bytes, one for each rank; `theirs` receives
  // the piece that each rank has for this one, by rank. Bounded like allgather, which serves where
  // a bootstrap has nothing better.
  virtual void alltoall(const void* mine, std::size_t bytes, void* theirs);

  // Collective: returns when every rank has called it; bounded like allgather.
  virtual void barrier() = 0;

  // Collective, the last call: from here a process may end without being missed.
  virtual void leave() { barrier(); }

  // Ends the whole job with this exit code, as far as the bootstrap can; may return, and then the
  // caller ends its own process (threads have no job to end).
  virtual void abort(int code, const std::string& why) = 0;

  // For whoever waits outside of the collectives: a descriptor that is readable when news() has
  // changed; -1 where there is nothing to wait for (MPI's launcher ends the processes by itself).
  virtual int news_fd() { return -1; }
  // The worst so far, and the first of its kind. Any thread may ask.
  virtual JobNews news() { return {}; }
};

// Collective: one trivially copyable record per rank, by rank.
template <class Record>
std::vector<Record> allgather(Bootstrap& bootstrap, const Record& mine) {
  std::vector<Record> all(static_cast<std::size_t>(bootstrap.size()));
  bootstrap.allgather(&mine, sizeof mine, all.data());
  return all;
}

}  // namespace railshmem
