#include "shmem/bootstrap/tcp/tcp_bootstrap.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "shmem/base/error.hpp"

namespace railshmem::tcp {
namespace {

// One unreachable address of several must not use up the time for the others.
constexpr double kMostPerAddressS = 5;
constexpr double kAbortS = 2;

}  // namespace

TcpBootstrap::TcpBootstrap(const JobId& id, const Place& place, double timeout_s,
                           Interrupted interrupted)
    : place_(place), timeout_s_(timeout_s), interrupted_(interrupted) {
  join(id);
}

std::string TcpBootstrap::who() const {
  return text("PE ", place_.rank, ": bootstrap: ");
}

// ---- joining
// --------------------------------------------------------------------------------------

void TcpBootstrap::join(const JobId& id) {
  const Clock::time_point deadline = after(timeout_s_);
  std::string tried;
  for (std::size_t i = 0; i < id.addresses.size() && !collectives_; ++i) {
    const auto share = (deadline - Clock::now()) / static_cast<int>(id.addresses.size() - i);
    const Clock::time_point limit = std::min(Clock::now() + share, after(kMostPerAddressS));
    try {
      collectives_ = connect(id, id.addresses[i], Channel::collectives, limit);
      address_ = text(id.addresses[i], " port ", id.port);
    } catch (const Error& error) {
      // Another process may listen under an address that several hosts have: the next may be right.
      if (error.kind() != ErrorKind::init && error.kind() != ErrorKind::timeout) throw;
      tried += text(tried.empty() ? "" : "; ", id.addresses[i], ": ", error.what());
    }
  }
  if (!collectives_)
    fail(ErrorKind::init, who(), "cannot reach the process that made the job's id, on port ",
         id.port, " of ", tried, ". Has it ended?");
  auto news = connect(id, address_.substr(0, address_.find(' ')), Channel::news, deadline);
  {
    const std::lock_guard<std::mutex> held(news_mutex_);
    news_link_ = std::move(news);
  }
  const Frame all_here = receive(*collectives_, kMostText, after(timeout_s_ * 1.2 + 1), address_);
  if (all_here.head.kind != Kind::welcome) refuse(all_here);
  hub_rank_ = all_here.head.rank;
}

std::unique_ptr<Link> TcpBootstrap::connect(const JobId& id, const std::string& address,
                                            Channel channel, Clock::time_point deadline) {
  auto link = std::make_unique<Link>(start_connecting(address, id.port));
  wait(link->fd(), POLLOUT, deadline, address);
  const std::string error = connect_error(link->fd());
  if (!error.empty()) fail(ErrorKind::init, error);
  Hello hello;
  hello.channel = channel;
  hello.secret = id.secret;
  hello.rank = place_.rank;
  hello.n_pes = place_.n_pes;
  hello.pid = ::getpid();
  hello.holds_hub = place_.holds_hub;
  hello.timeout_s = timeout_s_;
  link->send(std::string(reinterpret_cast<const char*>(&hello), sizeof hello));
  const Frame answer = receive(*link, kMostText, deadline, address);
  if (answer.head.kind != Kind::welcome) refuse(answer);
  return link;
}

void TcpBootstrap::refuse(const Frame& frame) const {
  if (frame.head.kind == Kind::stranger) fail(ErrorKind::init, "refused: ", frame.body);
  if (frame.head.kind != Kind::failed)
    fail(ErrorKind::init, who(), "an answer of kind ", static_cast<uint32_t>(frame.head.kind),
         " that nothing asked for");
  const auto kind = static_cast<ErrorKind>(frame.head.code);
  const std::string after_s =
      kind == ErrorKind::timeout ? text("after ", timeout_s_, " s (RAILSHMEM_TIMEOUT_S) ") : "";
  fail(kind, who(), after_s, frame.body);
}

// ---- collectives
// ----------------------------------------------------------------------------------

void TcpBootstrap::allgather(const void* mine, std::size_t bytes, void* all) {
  collective(Kind::gather, mine, bytes, all, bytes * static_cast<std::size_t>(size()));
}

void TcpBootstrap::alltoall(const void* mine, std::size_t bytes, void* theirs) {
  const std::size_t all = bytes * static_cast<std::size_t>(size());
  collective(Kind::exchange, mine, all, theirs, all);
}

void TcpBootstrap::leave() {
  collective(Kind::leave, nullptr, 0, nullptr, 0);
  const std::lock_guard<std::mutex> held(collective_mutex_);
  const std::lock_guard<std::mutex> held_too(news_mutex_);
  collectives_.reset();
  news_link_.reset();
}

void TcpBootstrap::collective(Kind kind, const void* mine, std::size_t bytes, void* answer,
                              std::size_t answer_bytes) {
  const std::lock_guard<std::mutex> held(collective_mutex_);
  if (!collectives_) fail(ErrorKind::argument, who(), "this PE has left the job");
  if (!failed_.empty()) fail(ErrorKind::aborted, "an earlier exchange failed: ", failed_);
  if (bytes > kMostBytes)
    fail(ErrorKind::argument, who(), bytes_text(bytes), " in one exchange: the most is ",
         bytes_text(kMostBytes));
  try {
    collectives_->send(bytes_of({kind, place_.rank}, mine, bytes));
    // The hub is the first to give up, as it knows who is missing.
    const Frame frame = receive(*collectives_, std::max<uint64_t>(answer_bytes, kMostText),
                                after(timeout_s_ * 1.2 + 1), address_);
    if (frame.head.kind != Kind::result) refuse(frame);
    if (frame.body.size() != answer_bytes)
      fail(ErrorKind::init, who(), "an answer of ", frame.body.size(), " bytes instead of ",
           answer_bytes);
    if (answer_bytes > 0) std::memcpy(answer, frame.body.data(), answer_bytes);
  } catch (const Error& error) {
    failed_ = error.what();  // the answer may still come, and must not be the next exchange's
    throw;
  }
}

// ---- waiting
// --------------------------------------------------------------------------------------

// Sends what the link has to send, and waits for the next message.
Frame TcpBootstrap::receive(Link& link, uint64_t most, Clock::time_point deadline,
                            const std::string& from) {
  Frame frame;
  while (!link.take(frame, most)) {
    // News that follows a welcome stays in the socket, where whoever waits for news will see it.
    const bool open = link.flush() && link.receive_message();
    if (link.take(frame, most)) break;
    if (!open) {
      const JobNews heard = news();
      if (heard.kind != JobNews::Kind::none) raise_news(heard);
      if (&link == collectives_.get()) raise_news({JobNews::Kind::lost, hub_rank_, 0, {}});
      fail(ErrorKind::init, "the connection was closed");
    }
    wait(link.fd(), static_cast<short>(POLLIN | (link.has_more_to_send() ? POLLOUT : 0)), deadline,
         from);
  }
  return frame;
}

void TcpBootstrap::wait(int fd, short events, Clock::time_point deadline, const std::string& from) {
  for (;;) {
    pollfd polled[] = {{fd, events, 0}, {news_fd(), POLLIN, 0}};
    const int ready = ::poll(polled, 2, until(deadline, 100));
    // What came for the collective counts first: it may be its result.
    if (ready > 0 && polled[0].revents != 0) return;
    if (ready > 0) {
      const JobNews heard = news();
      if (heard.kind != JobNews::Kind::none) raise_news(heard);
    }
    if (interrupted_ != nullptr && interrupted_())
      fail(ErrorKind::interrupted, who(), "interrupted while waiting for ", from);
    if (Clock::now() > deadline)
      fail(ErrorKind::timeout, who(), "no answer from ", from,
           ", where the job's id was made (waits end after RAILSHMEM_TIMEOUT_S, ", timeout_s_,
           " s)");
  }
}

void TcpBootstrap::raise_news(const JobNews& heard) const {
  if (heard.kind == JobNews::Kind::aborted)
    fail(ErrorKind::aborted, who(), "PE ", heard.rank, " aborted the job: ", heard.why);
  if (heard.rank < 0)
    fail(ErrorKind::peer_lost, who(),
         "the process that made the job's id has ended: restart the job");
  fail(ErrorKind::peer_lost, who(), "the process of PE ", heard.rank,
       " has ended; restart the job");
}

// ---- news
// -----------------------------------------------------------------------------------------

int TcpBootstrap::news_fd() {
  const std::lock_guard<std::mutex> held(news_mutex_);
  return news_link_ ? news_link_->fd() : -1;
}

JobNews TcpBootstrap::news() {
  const std::lock_guard<std::mutex> held(news_mutex_);
  if (!news_link_) return latest_;
  bool open = news_link_->flush() && news_link_->receive();
  Frame frame;
  try {
    while (news_link_->take(frame, kMostText)) {
      const Head& head = frame.head;
      if (head.kind == Kind::aborted && latest_.kind != JobNews::Kind::aborted)
        latest_ = {JobNews::Kind::aborted, head.rank, head.code, frame.body};
      else if (head.kind == Kind::lost && latest_.kind == JobNews::Kind::none)
        latest_ = {JobNews::Kind::lost, head.rank, 0, {}};
    }
  } catch (const Error&) {  // nonsense: as good as a hub that is gone
    open = false;
  }
  if (!open) {
    news_link_.reset();
    if (latest_.kind == JobNews::Kind::none) latest_ = {JobNews::Kind::lost, hub_rank_, 0, {}};
  }
  return latest_;
}

void TcpBootstrap::abort(int code, const std::string& why) {
  {
    const std::lock_guard<std::mutex> held(news_mutex_);
    if (!news_link_) return;
    news_link_->send(bytes_of({Kind::aborted, place_.rank, code}, why));
  }
  // The hub answers when it has told the others. It may be slow or gone: they will see this
  // process's connection close.
  const Clock::time_point deadline = after(kAbortS);
  while (news().kind != JobNews::Kind::aborted && Clock::now() < deadline) {
    pollfd polled = {news_fd(), POLLIN, 0};
    if (polled.fd < 0) return;
    // Looks again whether or not this was interrupted.
    if (::poll(&polled, 1, until(deadline, 50)) < 0) {
    }
  }
}

}  // namespace railshmem::tcp
