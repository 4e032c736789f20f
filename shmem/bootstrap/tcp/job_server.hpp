// The hub's state machine: who has come, the collective under way, and what went wrong. One thread
// runs it; it never waits but in poll().
#pragma once

#include <poll.h>

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "shmem/base/error.hpp"
#include "shmem/bootstrap/tcp/link.hpp"

namespace railshmem::tcp {

class JobServer {
 public:
  JobServer(const Secret& secret, FileDescriptor listener, int stop_event);

  // Serves until the stop event, and then until all is sent that was to be sent.
  void run();

 private:
  // A connection; of a process of the job once its hello was right.
  struct Guest {
    explicit Guest(FileDescriptor socket)
        : from(peer_of(socket.get())), link(std::move(socket)), hello_by(after(kHelloS)) {}
    std::string from;
    Link link;
    Clock::time_point hello_by;
    Hello hello;
    bool known = false;    // has told who it is, and knows the secret
    bool placed = false;   // is one of the connections in processes_, which point here: it stays
    bool closing = false;  // ends when everything is sent
    bool gone = false;
  };
  struct Process {
    Guest* collectives = nullptr;
    Guest* news = nullptr;
    bool came() const { return collectives != nullptr && news != nullptr; }
  };
  struct Round {
    Kind kind = Kind::gather;
    int first = -1;  // the rank that came first; -1: nobody is in it
    std::size_t bytes = 0;
    std::size_t n_here = 0;
    std::vector<bool> here;
    std::vector<std::string> parts;
    Clock::time_point deadline;
  };
  struct Failure {
    ErrorKind kind = ErrorKind::init;
    std::string text;  // empty: none
  };
  static constexpr double kHelloS = 10;
  static constexpr double kLingerS = 5;
  static constexpr double kDeafS = 0.1;
  static constexpr std::size_t kMostStrangers = 256;

  void accept_all();
  void serve(Guest& guest, short events);
  void greet(Guest& guest);
  void refuse(Guest& guest, const std::string& why);
  void request(Guest& guest, Frame& frame);
  void take_part(Guest& guest, Frame& frame);
  void answer_round();
  void abort(const Guest& guest, const Frame& frame);
  void ended(Guest& guest);
  void look_at_deadlines();
  int next_deadline() const;
  bool all_sent() const;

  // The job cannot go on: whoever waits, and whoever comes later, is told.
  void fail_job(ErrorKind kind, const std::string& text);
  void tell_failure(Guest& guest);
  void tell_news(const Head& head, const std::string& text, int except);
  std::string missing(const std::vector<bool>& here) const;
  std::vector<bool> came() const;
  static std::string name_of(const Guest& guest);

  const Secret secret_;
  const FileDescriptor listener_;
  const int stop_event_;
  std::list<Guest> guests_;
  Clock::time_point deaf_until_;    // the listener is not looked at
  std::vector<Process> processes_;  // by rank, once the first has told how many
  std::string first_;               // who told
  Clock::time_point all_by_;
  bool complete_ = false;  // all have come
  bool over_ = false;      // all have left
  Round round_;
  Failure failure_;
};

}  // namespace railshmem::tcp
