// A process of a job that meets over TCP: connected to the job's hub, wherever that is.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "shmem/bootstrap/bootstrap.hpp"
#include "shmem/bootstrap/tcp/id.hpp"
#include "shmem/bootstrap/tcp/link.hpp"

namespace railshmem::tcp {

// Who this process is in the job.
struct Place {
  int rank = 0;
  int n_pes = 1;
  bool holds_hub = false;  // the id was made here
};

class TcpBootstrap final : public Bootstrap {
 public:
  // Looked at about ten times a second during waits; true ends them with Error(interrupted).
  using Interrupted = bool (*)();

  // Collective: returns when all n_pes processes have come. Throws Error(init) naming each address
  // that was tried, Error(argument) naming both sides where ranks or sizes do not fit together, and
  // Error(timeout) naming the ranks that did not come.
  TcpBootstrap(const JobId& id, const Place& place, double timeout_s,
               Interrupted interrupted = nullptr);
  // Without leave() the others take this process for lost.
  ~TcpBootstrap() override = default;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.n_pes; }
  void allgather(const void* mine, std::size_t bytes, void* all) override;
  void alltoall(const void* mine, std::size_t bytes, void* theirs) override;
  void barrier() override { allgather(nullptr, 0, nullptr); }
  void leave() override;
  // Tells every process of the job, and returns when the hub has passed it on.
  void abort(int code, const std::string& why) override;
  int news_fd() override;
  JobNews news() override;

 private:
  std::unique_ptr<Link> connect(const JobId& id, const std::string& address, Channel channel,
                                Clock::time_point deadline);
  void join(const JobId& id);
  void collective(Kind kind, const void* mine, std::size_t bytes, void* answer,
                  std::size_t answer_bytes);
  Frame receive(Link& link, uint64_t most, Clock::time_point deadline, const std::string& from);
  void wait(int fd, short events, Clock::time_point deadline, const std::string& from);
  [[noreturn]] void refuse(const Frame& frame) const;
  [[noreturn]] void raise_news(const JobNews& news) const;
  std::string who() const;

  const Place place_;
  const double timeout_s_;
  const Interrupted interrupted_;
  int hub_rank_ = -1;
  std::string address_;  // the hub's
  std::mutex collective_mutex_;
  std::unique_ptr<Link> collectives_;  // null after leave()
  std::string failed_;                 // why no exchange is possible any more; empty: they are
  std::mutex news_mutex_;
  std::unique_ptr<Link> news_link_;  // null when the hub is gone, and after leave()
  JobNews latest_;
};

}  // namespace railshmem::tcp
