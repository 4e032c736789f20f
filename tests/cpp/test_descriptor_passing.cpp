#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmem/base/error.hpp"
#include "shmem/memory/descriptor_passing.hpp"

using namespace railshmem;

namespace {

FileDescriptor file_of(uint64_t word) {
  FileDescriptor fd(::memfd_create("passed", MFD_CLOEXEC));
  REQUIRE(::pwrite(fd.get(), &word, sizeof word, 0) == sizeof word);
  return fd;
}
uint64_t word_of(const FileDescriptor& fd) {
  uint64_t word = 0;
  return ::pread(fd.get(), &word, sizeof word, 0) == sizeof word ? word : 0;
}
bool closes_on_exec(const FileDescriptor& fd) {
  return (::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0;
}

// Runs the check in another process, which is no ancestor of the owner and has none of its later
// descriptors.
template <class Check>
bool holds_in_child(const PassedDescriptor& name, const Check& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(name.fd);  // what came by the fork is not what is tested
    std::string why;
    ::_exit(check(&why) ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

}  // namespace

TEST_CASE("descriptors: a socket alone hands them out, to as many as ask") {
  const DescriptorServer server(file_of(0x1234));
  std::string why;
  for (int i = 0; i < 3; ++i) {
    const FileDescriptor fd = ask_owner(server.name(), &why);
    REQUIRE(fd.valid());
    CHECK(word_of(fd) == 0x1234);
    CHECK(closes_on_exec(fd));
  }
  CHECK(holds_in_child(server.name(), [&](std::string* reason) {
    return word_of(ask_owner(server.name(), reason)) == 0x1234;
  }));
}

TEST_CASE("descriptors: taking one out of its owner works alone, or says why not") {
  const FileDescriptor file = file_of(0x5678);
  PassedDescriptor name;
  name.pid = ::getpid();
  name.fd = file.get();
  std::string why;
  const FileDescriptor fd = take_from_owner(name, &why);
  if (fd.valid()) {  // some kernels and containers forbid it
    CHECK(word_of(fd) == 0x5678);
    CHECK(closes_on_exec(fd));
  } else {
    CHECK(why.find("pidfd") == 0);
  }
}

TEST_CASE("descriptors: who does not know the key is not served") {
  const DescriptorServer server(file_of(1));
  PassedDescriptor guess = server.name();
  ++guess.key;
  std::string why;
  CHECK_FALSE(ask_owner(guess, &why).valid());
  CHECK(why.find("its socket: errno 111") == 0);
}

TEST_CASE("descriptors: an owner that is gone is an error that names both ways") {
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    const DescriptorServer server(file_of(1));
    ::_exit(::write(pipe_ends[1], &server.name(), sizeof(PassedDescriptor)) > 0 ? 0 : 1);
  }
  int status = 1;
  ::waitpid(owner, &status, 0);
  REQUIRE(status == 0);
  PassedDescriptor name;
  REQUIRE(::read(pipe_ends[0], &name, sizeof name) == sizeof name);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  try {
    fetch_descriptor(name);
    FAIL("served by nobody");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(error.kind() == ErrorKind::init);
    CHECK(text.find("cannot have descriptor ") == 0);
    CHECK(text.find("its socket: ") != std::string::npos);
    CHECK(text.find("; pidfd") != std::string::npos);
  }
}

TEST_CASE("descriptors: a thread that asks and goes away stops nobody") {
  const DescriptorServer server(file_of(9));
  // Connects and goes before it is served.
  for (int i = 0; i < 20; ++i)
    CHECK(holds_in_child(server.name(), [&](std::string*) { return true; }));
  std::string why;
  CHECK(word_of(ask_owner(server.name(), &why)) == 9);
}
