// One connection of the bootstrap, either side: messages in and out, never waiting.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "shmem/bootstrap/tcp/frames.hpp"
#include "shmem/bootstrap/tcp/socket.hpp"

namespace railshmem::tcp {

class Link {
 public:
  explicit Link(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  void close() { socket_ = FileDescriptor(); }

  // Queues bytes; several links may share them.
  void send(std::shared_ptr<const std::string> bytes) { out_.push_back(std::move(bytes)); }
  void send(std::string bytes) { send(std::make_shared<const std::string>(std::move(bytes))); }
  bool has_more_to_send() const { return !out_.empty(); }

  // Move what can be moved now. False: the connection has ended; what came before it can be taken.
  bool flush();
  bool receive() { return receive(kMostAtOnce); }
  // The same, but nothing beyond the next message: the socket stays readable for what follows.
  bool receive_message() { return receive(missing()); }

  // The first bytes of a connection; false while they have not all come.
  bool take(Hello& hello);
  // False while the next message has not all come. Throws Error(init) at what is no message, or one
  // whose body is longer than `most`: nobody can make this side allocate more.
  bool take(Frame& frame, uint64_t most);

 private:
  // At most this much beyond what is taken: whoever sends without end is read piece by piece.
  static constexpr std::size_t kMostAtOnce = 64 << 10;

  bool receive(std::size_t most);
  std::size_t missing() const;  // bytes of the next message, or of its head

  FileDescriptor socket_;
  std::string in_;
  std::deque<std::shared_ptr<const std::string>> out_;
  std::size_t sent_ = 0;  // of the first in out_
};

}  // namespace railshmem::tcp
