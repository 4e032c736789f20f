// Errors, grouped by what the caller must do next. One type, one kind, a text that names values.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace railshmem {

enum class ErrorKind {
  argument,        // fix the call; nothing was sent
  heap_exhausted,  // free memory or raise RAILSHMEM_HEAP_SIZE
  init,            // fix the environment and start again
  timeout,         // a wait ended at its deadline; the text says what it waited for
  network,         // a NIC answered with an error completion: peer, rail, operation, address
  peer_lost,       // another PE is gone: restart the job
  aborted,         // the job's abort word is set: restart the job
  interrupted,     // the host asked a wait to stop (Ctrl-C)
  gpu,             // the GPU's driver refused a call, or kernels cannot be had
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, text(parts...));
}

// "errno 12 (Cannot allocate memory)" of the call that has just failed.
std::string errno_text();

// 1610612736 -> "1.5 GiB", the way every message of the library prints sizes.
std::string bytes_text(unsigned long long bytes);

}  // namespace railshmem
