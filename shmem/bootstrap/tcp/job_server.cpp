#include "shmem/bootstrap/tcp/job_server.hpp"

#include <algorithm>
#include <cerrno>

namespace railshmem::tcp {

JobServer::JobServer(const Secret& secret, FileDescriptor listener, int stop_event)
    : secret_(secret), listener_(std::move(listener)), stop_event_(stop_event) {}

void JobServer::run() {
  bool stopping = false;
  Clock::time_point stop_by;
  std::vector<pollfd> polled;
  while (!stopping || (!all_sent() && Clock::now() < stop_by)) {
    const bool deaf = Clock::now() < deaf_until_;
    polled.assign(
        {{stopping ? -1 : stop_event_, POLLIN, 0}, {deaf ? -1 : listener_.get(), POLLIN, 0}});
    for (const Guest& guest : guests_)
      polled.push_back({guest.link.fd(),
                        static_cast<short>(POLLIN | (guest.link.has_more_to_send() ? POLLOUT : 0)),
                        0});
    const int patience = stopping ? until(stop_by, 1000) : next_deadline();
    // Failing, it was interrupted: nothing is ready, and the next turn looks again.
    if (::poll(polled.data(), polled.size(), patience) < 0) continue;
    auto at = polled.begin() + 2;
    for (Guest& guest : guests_) serve(guest, (at++)->revents);
    if (polled[1].revents != 0) accept_all();
    look_at_deadlines();
    for (Guest& guest : guests_)
      if (guest.gone) guest.link.close();
    guests_.remove_if([](const Guest& guest) { return guest.gone && !guest.placed; });
    if (polled[0].revents != 0) {
      stopping = true;
      stop_by = after(kLingerS);
    }
  }
}

// ---- who comes
// ------------------------------------------------------------------------------------

void JobServer::accept_all() {
  for (;;) {
    FileDescriptor socket = accept_from(listener_);
    if (!socket.valid()) {
      // Without a descriptor left the caller stays at the door, and poll() would say so for ever.
      if (errno == EMFILE || errno == ENFILE) deaf_until_ = after(kDeafS);
      return;
    }
    const auto is_stranger = [](const Guest& guest) { return !guest.known && !guest.gone; };
    // Whoever connects and says nothing must not keep the job's processes out.
    if (static_cast<std::size_t>(std::count_if(guests_.begin(), guests_.end(), is_stranger)) >=
        kMostStrangers)
      std::find_if(guests_.begin(), guests_.end(), is_stranger)->gone = true;
    guests_.emplace_back(std::move(socket));
  }
}

void JobServer::serve(Guest& guest, short events) {
  if (guest.gone || events == 0) return;
  const bool open = (events & ~POLLOUT) == 0 || guest.link.receive();
  try {
    if (!guest.known && !guest.closing && guest.link.take(guest.hello)) greet(guest);
    Frame frame;
    while (guest.known && !guest.closing && guest.link.take(frame, kMostBytes))
      request(guest, frame);
  } catch (const Error&) {  // what came is no message: end the connection, as if it had ended
    return ended(guest);
  }
  if (!open || !guest.link.flush() || (guest.closing && !guest.link.has_more_to_send()))
    ended(guest);
}

void JobServer::greet(Guest& guest) {
  const Hello& hello = guest.hello;
  if (hello.magic != kMagic) {
    guest.gone = true;  // it speaks of something else, and is told nothing
    return;
  }
  if (hello.version != kVersion)
    return refuse(guest, text("the process that made the id speaks version ", kVersion,
                              " of the protocol, this one version ", hello.version));
  uint8_t difference = 0;  // the whole secret, whatever differs first: the time taken tells nothing
  for (std::size_t i = 0; i < secret_.size(); ++i) difference |= secret_[i] ^ hello.secret[i];
  if (difference != 0) return refuse(guest, "the secret is another job's");
  guest.known = true;
  if (!failure_.text.empty()) return tell_failure(guest);
  if (complete_)
    return refuse(guest, text(name_of(guest), " came to a job whose ", processes_.size(),
                              " PEs are all there: an id serves one job, once"));
  if (first_.empty()) {
    if (hello.n_pes < 1 || hello.n_pes > kMostPes)
      return fail_job(ErrorKind::argument, text(name_of(guest), " says that the job has ",
                                                hello.n_pes, " PEs: expected 1 to ", kMostPes));
    first_ = name_of(guest);
    processes_.resize(static_cast<std::size_t>(hello.n_pes));
    all_by_ = after(hello.timeout_s);
  }
  const auto n_pes = static_cast<int32_t>(processes_.size());
  if (hello.n_pes != n_pes)
    return fail_job(ErrorKind::argument, text(name_of(guest), " says that the job has ",
                                              hello.n_pes, " PEs, ", first_, " says ", n_pes));
  if (hello.rank < 0 || hello.rank >= n_pes)
    return fail_job(ErrorKind::argument,
                    text(name_of(guest), " cannot be in a job of ", n_pes, " PEs"));
  Process& process = processes_[static_cast<std::size_t>(hello.rank)];
  Guest*& place = hello.channel == Channel::news ? process.news : process.collectives;
  if (place != nullptr)
    return fail_job(
        ErrorKind::argument,
        text("two processes came as the same rank: ", name_of(*place), " and ", name_of(guest)));
  place = &guest;
  guest.placed = true;
  guest.link.send(bytes_of({Kind::welcome}));
  const std::vector<bool> here = came();
  complete_ = std::find(here.begin(), here.end(), false) == here.end();
  if (!complete_) return;
  Head all_here{Kind::welcome, -1, 1};
  for (const Process& one : processes_)
    if (one.collectives->hello.holds_hub != 0) all_here.rank = one.collectives->hello.rank;
  for (const Process& one : processes_) one.collectives->link.send(bytes_of(all_here));
}

void JobServer::refuse(Guest& guest, const std::string& why) {
  guest.link.send(bytes_of({Kind::stranger}, why));
  guest.closing = true;
}

std::string JobServer::name_of(const Guest& guest) {
  return text("rank ", guest.hello.rank, " (pid ", guest.hello.pid, " on ", guest.from, ")");
}

std::vector<bool> JobServer::came() const {
  std::vector<bool> out;
  for (const Process& process : processes_) out.push_back(process.came());
  return out;
}

// ---- what they ask for
// ----------------------------------------------------------------------------

void JobServer::request(Guest& guest, Frame& frame) {
  const bool on_news = guest.hello.channel == Channel::news;
  if (on_news && guest.placed && frame.head.kind == Kind::aborted) return abort(guest, frame);
  const bool collective = frame.head.kind == Kind::gather || frame.head.kind == Kind::exchange ||
                          frame.head.kind == Kind::leave;
  if (on_news || !guest.placed || !collective || !complete_) return ended(guest);
  if (!failure_.text.empty()) return tell_failure(guest);
  take_part(guest, frame);
}

void JobServer::take_part(Guest& guest, Frame& frame) {
  const int rank = guest.hello.rank;
  const auto index = static_cast<std::size_t>(rank);
  if (round_.first < 0) {
    round_ = Round();
    round_.kind = frame.head.kind;
    round_.first = rank;
    round_.bytes = frame.body.size();
    round_.here.resize(processes_.size());
    round_.parts.resize(processes_.size());
    round_.deadline = after(guest.hello.timeout_s);
  }
  const bool alike =
      frame.head.kind == round_.kind && frame.body.size() == round_.bytes && !round_.here[index];
  round_.n_here += !round_.here[index];
  round_.here[index] = true;
  if (!alike || (round_.kind == Kind::exchange && round_.bytes % processes_.size() != 0))
    return fail_job(ErrorKind::argument,
                    text("rank ", rank, " gives ", frame.body.size(), " bytes to collective ",
                         static_cast<uint32_t>(frame.head.kind), " while rank ", round_.first,
                         " gives ", round_.bytes, " to ", static_cast<uint32_t>(round_.kind)));
  round_.parts[index] = std::move(frame.body);
  if (round_.n_here == processes_.size()) answer_round();
}

void JobServer::answer_round() {
  if (round_.kind == Kind::exchange) {
    const std::size_t each = round_.bytes / processes_.size();
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      std::string mine;
      for (const std::string& part : round_.parts) mine.append(part, rank * each, each);
      processes_[rank].collectives->link.send(bytes_of({Kind::result}, mine.data(), mine.size()));
    }
  } else {
    std::string all;
    for (const std::string& part : round_.parts) all += part;
    const auto answer =
        std::make_shared<const std::string>(bytes_of({Kind::result}, all.data(), all.size()));
    for (const Process& process : processes_) process.collectives->link.send(answer);
  }
  if (round_.kind == Kind::leave) {
    over_ = true;
    for (Guest& guest : guests_) guest.closing = guest.closing || guest.known;
  }
  round_ = Round();
  // Most answers fit into the sockets at once.
  for (const Process& process : processes_) process.collectives->link.flush();
}

void JobServer::abort(const Guest& guest, const Frame& frame) {
  const int rank = guest.hello.rank;
  const Head news{Kind::aborted, rank, frame.head.code};
  tell_news(news, frame.body, rank);
  if (failure_.text.empty())
    failure_ = {ErrorKind::aborted, text("PE ", rank, " aborted the job: ", frame.body)};
  // To who asked last: it may end its process, perhaps the hub's, when it has the answer.
  Guest* asked = processes_[static_cast<std::size_t>(rank)].news;
  asked->link.send(bytes_of(news, frame.body));
  asked->link.flush();
}

// ---- what goes wrong
// ------------------------------------------------------------------------------

void JobServer::ended(Guest& guest) {
  if (guest.gone) return;
  guest.gone = true;
  const auto rank = static_cast<std::size_t>(guest.hello.rank);
  if (!guest.placed || over_) return;
  const Process& process = processes_[rank];
  if (!complete_) {
    fail_job(ErrorKind::init, text(name_of(guest), " left before all ranks had come"));
  } else {
    // Its other connection ends as well: one loss is told once.
    for (const Guest* other : {process.collectives, process.news})
      if (other != &guest && other->gone) return;
    tell_news({Kind::lost, guest.hello.rank}, {}, guest.hello.rank);
    if (failure_.text.empty())
      fail_job(ErrorKind::peer_lost, text("the process of PE ", rank, " has ended"));
  }
}

void JobServer::fail_job(ErrorKind kind, const std::string& why) {
  if (!failure_.text.empty()) return;
  failure_ = {kind, why};
  for (Guest& guest : guests_) {
    if (!guest.known || guest.gone) continue;
    const bool waits = round_.first >= 0 && guest.placed &&
                       guest.hello.channel == Channel::collectives &&
                       round_.here[static_cast<std::size_t>(guest.hello.rank)];
    if (!complete_ || waits) tell_failure(guest);
  }
  round_ = Round();
}

void JobServer::tell_failure(Guest& guest) {
  guest.link.send(bytes_of({Kind::failed, -1, static_cast<int32_t>(failure_.kind)}, failure_.text));
  guest.link.flush();
}

void JobServer::tell_news(const Head& head, const std::string& why, int except) {
  const auto bytes = std::make_shared<const std::string>(bytes_of(head, why));
  for (const Process& process : processes_)
    if (process.news != nullptr && !process.news->gone && process.news->hello.rank != except) {
      process.news->link.send(bytes);
      process.news->link.flush();
    }
}

void JobServer::look_at_deadlines() {
  const Clock::time_point now = Clock::now();
  for (Guest& guest : guests_)
    if (!guest.known && now > guest.hello_by) guest.gone = true;
  if (!failure_.text.empty()) return;
  const bool forming = !first_.empty() && !complete_;
  if (forming && now > all_by_)
    fail_job(ErrorKind::timeout, "these ranks had not come in time: " + missing(came()));
  else if (round_.first >= 0 && now > round_.deadline)
    fail_job(ErrorKind::timeout, "these ranks had not come in time: " + missing(round_.here));
}

int JobServer::next_deadline() const {
  constexpr int kLongest = 3600 * 1000;
  int out = kLongest;
  for (const Guest& guest : guests_)
    if (!guest.known) out = until(guest.hello_by, out);
  if (Clock::now() < deaf_until_) out = until(deaf_until_, out);
  if (!failure_.text.empty()) return out;
  if (!first_.empty() && !complete_) out = until(all_by_, out);
  if (round_.first >= 0) out = until(round_.deadline, out);
  return out;
}

std::string JobServer::missing(const std::vector<bool>& here) const {
  constexpr int kMostNamed = 32;
  std::string out;
  int count = 0;
  for (std::size_t rank = 0; rank < here.size(); ++rank)
    if (!here[rank] && ++count <= kMostNamed) out += text(count == 1 ? "" : ", ", rank);
  return count <= kMostNamed ? out : text(out, " ... (", count, " in all)");
}

bool JobServer::all_sent() const {
  return std::none_of(guests_.begin(), guests_.end(), [](const Guest& guest) {
    return !guest.gone && guest.link.has_more_to_send();
  });
}

}  // namespace railshmem::tcp
