// Many PEs in one process: each thread holds one ThreadBootstrap of the same ThreadJob. Made for
// tests and sanitizers, which see all PEs at once.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shmem/bootstrap/bootstrap.hpp"

namespace railshmem {

// What the ranks of one in-process job share.
class ThreadJob {
 public:
  ThreadJob(int size, double timeout_s);

  int size() const { return size_; }
  void allgather(int rank, const void* mine, std::size_t bytes, void* all);
  void abort(int rank, const std::string& why);

 private:
  std::string missing_ranks() const;

  const int size_;
  const double timeout_s_;
  std::mutex mutex_;
  std::condition_variable turned_;
  std::size_t round_ = 0;
  std::size_t arrived_ = 0;
  std::size_t bytes_ = 0;
  std::vector<bool> here_;
  std::vector<char> gathering_;  // filled by the ranks of this round
  std::vector<char> gathered_;   // the last complete round
  std::string aborted_;          // why, once somebody aborted or a round failed
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<ThreadJob> job, int rank);

  int rank() const override { return rank_; }
  int size() const override { return job_->size(); }
  void allgather(const void* mine, std::size_t bytes, void* all) override;
  void barrier() override { job_->allgather(rank_, nullptr, 0, nullptr); }
  void abort(int code, const std::string& why) override;

 private:
  std::shared_ptr<ThreadJob> job_;
  const int rank_;
};

}  // namespace railshmem
