#include "shmem/bootstrap/threads.hpp"

#include <chrono>
#include <cstring>

#include "shmem/base/error.hpp"

namespace railshmem {

ThreadJob::ThreadJob(int size, double timeout_s)
    : size_(size), timeout_s_(timeout_s), here_(static_cast<std::size_t>(size > 0 ? size : 0)) {
  if (size < 1) fail(ErrorKind::argument, "a job of ", size, " PEs: expected at least 1");
}

std::string ThreadJob::missing_ranks() const {
  std::string out;
  for (int rank = 0; rank < size_; ++rank)
    if (!here_[static_cast<std::size_t>(rank)]) out += text(out.empty() ? "" : ", ", rank);
  return out;
}

void ThreadJob::allgather(int rank, const void* mine, std::size_t bytes, void* all) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!aborted_.empty()) fail(ErrorKind::aborted, "PE ", rank, ": ", aborted_);
  if (arrived_ == 0) {
    bytes_ = bytes;
    gathering_.assign(bytes * static_cast<std::size_t>(size_), 0);
    here_.assign(static_cast<std::size_t>(size_), false);
  }
  if (bytes != bytes_) {
    aborted_ = text("PE ", rank, " gave ", bytes, " bytes to an allgather of ", bytes_);
    turned_.notify_all();
    fail(ErrorKind::argument, aborted_);
  }
  const auto index = static_cast<std::size_t>(rank);
  if (bytes > 0) std::memcpy(gathering_.data() + index * bytes, mine, bytes);
  here_[index] = true;
  const std::size_t round = round_;
  if (++arrived_ == static_cast<std::size_t>(size_)) {
    gathered_.swap(gathering_);
    arrived_ = 0;
    ++round_;
    turned_.notify_all();
  } else {
    const bool came = turned_.wait_for(lock, std::chrono::duration<double>(timeout_s_),
                                       [&] { return round_ != round || !aborted_.empty(); });
    if (round_ == round) {
      if (!came)
        aborted_ =
            text("bootstrap: after ", timeout_s_, " s these ranks had not come: ", missing_ranks());
      turned_.notify_all();
      fail(came ? ErrorKind::aborted : ErrorKind::timeout, "PE ", rank, ": ", aborted_);
    }
  }
  // gathered_ stays until every rank of this round has entered the next one, so reading it here,
  // still under the lock, is safe.
  if (bytes > 0) std::memcpy(all, gathered_.data(), gathered_.size());
}

void ThreadJob::abort(int rank, const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_.empty()) aborted_ = text("PE ", rank, " aborted the job: ", why);
  turned_.notify_all();
}

ThreadBootstrap::ThreadBootstrap(std::shared_ptr<ThreadJob> job, int rank)
    : job_(std::move(job)), rank_(rank) {
  if (rank < 0 || rank >= job_->size())
    fail(ErrorKind::argument, "rank ", rank, " of a job of ", job_->size());
}

void ThreadBootstrap::allgather(const void* mine, std::size_t bytes, void* all) {
  job_->allgather(rank_, mine, bytes, all);
}

void ThreadBootstrap::abort(int, const std::string& why) {
  job_->abort(rank_, why);
}

}  // namespace railshmem
