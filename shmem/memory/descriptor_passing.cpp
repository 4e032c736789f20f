#include "shmem/memory/descriptor_passing.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

#include "shmem/base/error.hpp"

namespace railshmem {
namespace {

constexpr int kPatienceS = 10;  // of both sides, for the few bytes of one exchange

// A name without a file: nothing stays behind.
struct SocketAddress {
  explicit SocketAddress(const PassedDescriptor& name) {
    address.sun_family = AF_UNIX;
    char* const out = address.sun_path + 1;  // the first character is 0: the abstract namespace
    const int length = std::snprintf(out, sizeof address.sun_path - 1, "railshmem-%d-%d-%016llx",
                                     name.pid, name.fd, static_cast<unsigned long long>(name.key));
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(length));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address = {};
  socklen_t size = 0;
};

FileDescriptor open_socket() {
  FileDescriptor out(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const timeval patience{kPatienceS, 0};
  if (out.valid()) {
    ::setsockopt(out.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(out.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }
  return out;
}

union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

bool send_descriptor(int socket, int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  Control control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

FileDescriptor receive_descriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  Control control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* const header = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return FileDescriptor();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return FileDescriptor(fd);
}

}  // namespace

DescriptorServer::DescriptorServer(FileDescriptor descriptor)
    : descriptor_(std::move(descriptor)),
      listener_(open_socket()),
      end_(::eventfd(0, EFD_CLOEXEC)) {
  name_.pid = ::getpid();
  name_.fd = descriptor_.get();
  if (::getrandom(&name_.key, sizeof name_.key, 0) != static_cast<ssize_t>(sizeof name_.key))
    fail(ErrorKind::init, "getrandom: ", errno_text());
  const SocketAddress address(name_);
  if (!listener_.valid() || !end_.valid() ||
      ::bind(listener_.get(), address.get(), address.size) != 0 ||
      ::listen(listener_.get(), 128) != 0)
    fail(ErrorKind::init, "cannot open the socket that hands out memory handles: ", errno_text());
  sigset_t all;
  sigset_t before;
  sigfillset(&all);  // signals are for the interpreter's thread
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

DescriptorServer::~DescriptorServer() {
  const uint64_t one = 1;
  if (::write(end_.get(), &one, sizeof one) == sizeof one && thread_.joinable()) thread_.join();
}

void DescriptorServer::run() {
  pthread_setname_np(pthread_self(), "rsh-handles");
  for (;;) {
    pollfd watched[2] = {{listener_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
    if (::poll(watched, 2, -1) < 0 && errno != EINTR) return;
    if ((watched[1].revents & POLLIN) != 0) return;
    if ((watched[0].revents & POLLIN) == 0) continue;
    const FileDescriptor asking(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // One that goes before it is served hears nothing; it says so itself.
    if (asking.valid()) send_descriptor(asking.get(), descriptor_.get());
  }
}

FileDescriptor take_from_owner(const PassedDescriptor& name, std::string* why) {
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
  const FileDescriptor owner(static_cast<int>(::syscall(SYS_pidfd_open, name.pid, 0)));
  if (owner.valid()) {
    const int fd = static_cast<int>(::syscall(SYS_pidfd_getfd, owner.get(), name.fd, 0));
    if (fd >= 0) {
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
      return FileDescriptor(fd);
    }
    *why = text("pidfd_getfd: ", errno_text());
  } else {
    *why = text("pidfd_open: ", errno_text());
  }
#else
  *why = "pidfd_getfd is unknown to this build";
#endif
  return FileDescriptor();
}

FileDescriptor ask_owner(const PassedDescriptor& name, std::string* why) {
  const FileDescriptor socket = open_socket();
  const SocketAddress address(name);
  if (!socket.valid() || ::connect(socket.get(), address.get(), address.size) != 0) {
    *why = text("its socket: ", errno_text());
    return FileDescriptor();
  }
  FileDescriptor fd = receive_descriptor(socket.get());
  if (!fd.valid()) *why = text("its socket gave no descriptor: ", errno_text());
  return fd;
}

// The owner's socket first: its name holds a key, so that what comes is what was meant; a number in
// a process could by now be another file.
FileDescriptor fetch_descriptor(const PassedDescriptor& name) {
  std::string by_socket;
  FileDescriptor fd = ask_owner(name, &by_socket);
  if (fd.valid()) return fd;
  std::string by_pidfd;
  fd = take_from_owner(name, &by_pidfd);
  if (!fd.valid())
    fail(ErrorKind::init, "cannot have descriptor ", name.fd, " of process ", name.pid, ": ",
         by_socket, "; ", by_pidfd);
  return fd;
}

}  // namespace railshmem
