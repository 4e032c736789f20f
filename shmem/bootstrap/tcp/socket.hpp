// Sockets with deadlines: what hub and processes share of the operating system's interface.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shmem/base/file_descriptor.hpp"

namespace railshmem::tcp {

using Clock = std::chrono::steady_clock;

inline Clock::time_point after(double seconds) {
  // Longer than a year is for ever; the clock's own numbers would overflow.
  const double bounded = seconds < 3e7 ? seconds : 3e7;
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
}

// Milliseconds for poll(), at least 0 and at most `most`, rounded up.
int until(Clock::time_point deadline, int most);

struct Listener {
  FileDescriptor socket;
  uint16_t port = 0;
  std::vector<std::string> addresses;  // under which other hosts may reach it
};

// `interface`: a name or an address of this host to listen on; empty: all, of which the addresses
// of loopback are told only where there are no others. Throws Error(init) naming what there is.
Listener listen_on(const std::string& interface);

// A non-blocking connection, started; poll() says when it is made, and connect_error how it ended.
// Throws Error(init).
FileDescriptor start_connecting(const std::string& address, uint16_t port);
// "" when the connection is made.
std::string connect_error(int socket);

// Accepted connections are non-blocking; an invalid descriptor when there is none.
FileDescriptor accept_from(const FileDescriptor& listener);

// The other side's address, as in messages.
std::string peer_of(int socket);

// Bytes moved now; 0: not possible now; -1: the connection has ended.
long receive_some(int socket, void* data, std::size_t bytes);
long send_some(int socket, const void* data, std::size_t bytes);

}  // namespace railshmem::tcp
