// What a process needs to join a job over TCP: where the job's hub listens, and a secret that tells
// this job's processes from strangers. Its text is printable, has no spaces, and is safe in
// environment variables and command lines:
//
//   railshmem1/40123/9f86d081884c7d659a2feaa0c55ad015/192.0.2.2,fd00::2
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace railshmem::tcp {

using Secret = std::array<uint8_t, 16>;

struct JobId {
  uint16_t port = 0;
  Secret secret = {};
  std::vector<std::string> addresses;  // numeric, of the hub's host; to be tried in this order

  std::string str() const;
  // Throws Error(argument) showing the text and what is wrong with it.
  static JobId parse(const std::string& text);
};

// Throws Error(init) where the kernel gives no random numbers.
Secret random_secret();

}  // namespace railshmem::tcp
