// Runs a body as many PEs, each a process of its own: for what is one per process, such as the
// default runtime.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "shmem/bootstrap/bootstrap.hpp"
#include "tests/cpp/thread_pes.hpp"

namespace railshmem::testing {

// As many as tell something. The thread sanitizer sees one process only, and so not what orders its
// threads by way of another one.
#if defined(__SANITIZE_THREAD__)
constexpr int kForkedPes = 1;
#else
constexpr int kForkedPes = 3;
#endif

// What the processes of a job share, before they are forked.
struct SharedArea {
  static constexpr std::size_t kMostBytes = 256 * 1024;
  static constexpr int kMostPes = 4;
  std::atomic<int> arrivals{0};
  char data[kMostPes][kMostBytes];
};

class ForkedBootstrap final : public Bootstrap {
 public:
  ForkedBootstrap(SharedArea& area, int rank, int size) : area_(area), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const int mine = area_.arrivals.fetch_add(1);
    const int everybody = (mine / size_ + 1) * size_;
    while (area_.arrivals.load() < everybody) {
      if (std::chrono::steady_clock::now() > deadline)
        fail(ErrorKind::timeout, "some forked process did not come");
      sched_yield();
    }
  }
  void allgather(const void* mine, std::size_t bytes, void* all) override {
    if (bytes > SharedArea::kMostBytes)
      fail(ErrorKind::init, "allgather of ", bytes, " bytes is beyond the shared area");
    std::memcpy(area_.data[rank_], mine, bytes);
    barrier();
    for (int rank = 0; rank < size_; ++rank)
      std::memcpy(static_cast<char*>(all) + static_cast<std::size_t>(rank) * bytes,
                  area_.data[rank], bytes);
    barrier();  // all have read
  }
  [[noreturn]] void abort(int code, const std::string& why) override {
    std::fprintf(stderr, "forked PE %d: %s\n", rank_, why.c_str());
    std::_Exit(code);
  }

 private:
  SharedArea& area_;
  const int rank_;
  const int size_;
};

// Calls body(bootstrap) in `n_pes` processes; returns what those that failed did: empty is well.
template <class Body>
std::string run_forked_pes(int n_pes, const Body& body) {
  void* shared =
      mmap(nullptr, sizeof(SharedArea), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    fail(ErrorKind::init, "mmap of the area that PEs share: ", errno_text());
  auto* area = new (shared) SharedArea;
  std::vector<pid_t> children;
  for (int rank = 0; rank < n_pes; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        body(std::make_shared<ForkedBootstrap>(*area, rank, n_pes));
        std::_Exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "forked PE %d: %s\n", rank, error.what());
        std::_Exit(1);
      }
    }
    children.push_back(child);
  }
  std::string failures;
  for (int rank = 0; rank < n_pes; ++rank) {
    int status = 0;  // every wait of the body is bounded, and so is this one
    waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    if (status != 0) failures += text("PE ", rank, " ended with status ", status, "; ");
  }
  munmap(shared, sizeof(SharedArea));
  return failures;
}

}  // namespace railshmem::testing
