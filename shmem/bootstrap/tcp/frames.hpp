// What travels between the hub and the processes of a job. A process holds two connections to the
// hub: on one it takes part in collectives (one request, one answer), on the other the hub tells at
// any time what happened to the job, and the process may ask to end it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "shmem/bootstrap/tcp/id.hpp"

namespace railshmem::tcp {

// "RAILTCP" in the byte order of the sender: raw structures are exchanged, so hosts of another byte
// order are strangers.
constexpr uint64_t kMagic = 0x005043544c494152ull;
constexpr uint32_t kVersion = 1;
constexpr int kMostPes = 1 << 16;
// Bounds what one process can make another allocate: of a part, and of a message.
constexpr uint64_t kMostBytes = uint64_t{256} << 20;
constexpr uint64_t kMostText = 64 << 10;

enum class Channel : uint32_t { collectives, news };

// The first bytes on each connection.
struct Hello {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  Channel channel = Channel::collectives;
  Secret secret = {};
  int32_t rank = 0;
  int32_t n_pes = 0;
  int32_t pid = 0;
  uint32_t holds_hub = 0;  // the hub lives in this process
  double timeout_s = 0;    // how long this process waits for the others
};

enum class Kind : uint32_t {
  welcome,   // to a process: the secret is right (code 0), then: all have come (code 1)
  gather,    // to the hub: a part for everybody
  exchange,  // to the hub: n_pes parts, one for each
  leave,     // to the hub: nothing more will come; answered when all leave
  result,    // to a process: what its collective gave
  failed,    // to a process: its collective failed; code is an ErrorKind, the text says why
  stranger,  // to a process: it has not to do with this hub, the text says why
  lost,      // news: the process of `rank` has ended; -1: of the hub
  aborted,   // news, and the request for it: `rank` ends the job with exit code `code`
};

struct Head {
  Kind kind = Kind::welcome;
  int32_t rank = -1;
  int32_t code = 0;
  uint32_t unused = 0;
  uint64_t bytes = 0;  // that follow
};

static_assert(std::is_trivially_copyable<Hello>::value && sizeof(Hello) == 56, "sent as it is");
static_assert(std::is_trivially_copyable<Head>::value && sizeof(Head) == 24, "sent as it is");

// One message.
struct Frame {
  Head head;
  std::string body;
};

inline std::string bytes_of(Head head, const void* body, std::size_t bytes) {
  head.bytes = bytes;
  std::string out(reinterpret_cast<const char*>(&head), sizeof head);
  if (bytes > 0) out.append(static_cast<const char*>(body), bytes);
  return out;
}
inline std::string bytes_of(const Head& head, const std::string& text = {}) {
  return bytes_of(head, text.data(), text.size() < kMostText ? text.size() : kMostText);
}

}  // namespace railshmem::tcp
