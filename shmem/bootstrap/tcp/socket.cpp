#include "shmem/bootstrap/tcp/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "shmem/base/error.hpp"

namespace railshmem::tcp {
namespace {

// An address of this host.
struct Address {
  std::string interface;
  std::string text;
  bool loopback = false;
};

std::string text_of(const sockaddr* address) {
  char out[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, out, sizeof out);
  else
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, out,
                sizeof out);
  const std::string mapped = "::ffff:";  // IPv4 on a socket of both kinds
  const std::string found = out;
  return found.compare(0, mapped.size(), mapped) == 0 && found.find('.') != std::string::npos
             ? found.substr(mapped.size())
             : found;
}

// Of interfaces that are up; IPv4 first, as more hosts have it. Link-local ones need a scope that
// means nothing on other hosts.
std::vector<Address> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    fail(ErrorKind::init, "cannot list this host's network interfaces: ", errno_text());
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Address> out;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
      if ((at->ifa_flags & IFF_UP) == 0) continue;
      if (family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr))
        continue;
      out.push_back({at->ifa_name, text_of(at->ifa_addr), (at->ifa_flags & IFF_LOOPBACK) != 0});
    }
  return out;
}

std::string list_of(const std::vector<Address>& addresses) {
  std::string out;
  for (const Address& address : addresses)
    out += text(out.empty() ? "" : ", ", address.interface, " (", address.text, ")");
  return out.empty() ? "none that is up" : out;
}

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// `address` empty: any.
SocketAddress socket_address(int family, const std::string& address, uint16_t port) {
  SocketAddress out;
  if (family == AF_INET) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
    out.bytes = sizeof *v4;
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    if (!address.empty()) ::inet_pton(AF_INET, address.c_str(), &v4->sin_addr);
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    out.bytes = sizeof *v6;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    if (!address.empty()) ::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr);
  }
  return out;
}

int family_of(const std::string& address) {
  return address.find(':') == std::string::npos ? AF_INET : AF_INET6;
}

FileDescriptor try_listen(int family, const std::string& address) {
  FileDescriptor out(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!out.valid()) return out;
  const int off = 0;
  if (family == AF_INET6 && address.empty())
    ::setsockopt(out.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const SocketAddress at = socket_address(family, address, 0);
  if (::bind(out.get(), at.get(), at.bytes) != 0 || ::listen(out.get(), SOMAXCONN) != 0)
    return FileDescriptor();
  return out;
}

uint16_t port_of(int socket) {
  SocketAddress bound;
  bound.bytes = sizeof bound.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes) != 0)
    fail(ErrorKind::init, "a listening socket without an address: ", errno_text());
  // The port is at the same place in both kinds.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
}

// Small messages leave at once, and a host that has gone silent is noticed in half a minute.
void tune(int socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace

int until(Clock::time_point deadline, int most) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count() + 1;
  if (left < 0) return 0;
  return left < most ? static_cast<int>(left) : most;
}

Listener listen_on(const std::string& interface) {
  const std::vector<Address> all = own_addresses();
  Listener out;
  std::string bound;
  if (!interface.empty()) {
    for (const Address& address : all)
      if (bound.empty() && (address.interface == interface || address.text == interface))
        bound = address.text;
    if (bound.empty())
      fail(ErrorKind::init, "RAILSHMEM_INTERFACE=", interface, ": this host has ", list_of(all));
    out.addresses = {bound};
  } else {
    for (const bool loopback : {false, true})
      for (const Address& address : all)
        if (address.loopback == loopback && (!loopback || out.addresses.empty()))
          out.addresses.push_back(address.text);
    if (out.addresses.empty())
      fail(ErrorKind::init, "no network interface to listen on: this host has ", list_of(all));
  }
  out.socket = try_listen(bound.empty() ? AF_INET6 : family_of(bound), bound);
  // Hosts may be without IPv6.
  if (!out.socket.valid() && bound.empty()) out.socket = try_listen(AF_INET, bound);
  if (!out.socket.valid())
    fail(ErrorKind::init, "cannot listen on ", bound.empty() ? "any address" : bound, ": ",
         errno_text());
  out.port = port_of(out.socket.get());
  return out;
}

FileDescriptor start_connecting(const std::string& address, uint16_t port) {
  const int family = family_of(address);
  FileDescriptor out(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!out.valid()) fail(ErrorKind::init, "no socket for ", address, ": ", errno_text());
  tune(out.get());
  const SocketAddress to = socket_address(family, address, port);
  if (::connect(out.get(), to.get(), to.bytes) != 0 && errno != EINPROGRESS)
    fail(ErrorKind::init, errno_text());
  return out;
}

std::string connect_error(int socket) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno_text();
  if (error == 0) return {};
  errno = error;
  return errno_text();
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  FileDescriptor out(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (out.valid()) tune(out.get());
  return out;
}

std::string peer_of(int socket) {
  SocketAddress peer;
  peer.bytes = sizeof peer.storage;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes) != 0)
    return "an unknown address";
  return text_of(peer.get());
}

long receive_some(int socket, void* data, std::size_t bytes) {
  const ssize_t count = ::recv(socket, data, bytes, 0);
  if (count > 0) return count;
  return count < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

long send_some(int socket, const void* data, std::size_t bytes) {
  const ssize_t count = ::send(socket, data, bytes, MSG_NOSIGNAL);
  if (count >= 0) return count;
  return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

}  // namespace railshmem::tcp
