#include "shmem/bootstrap/tcp/link.hpp"

#include <algorithm>
#include <cstring>

#include "shmem/base/error.hpp"

namespace railshmem::tcp {

bool Link::flush() {
  while (!out_.empty()) {
    const std::string& bytes = *out_.front();
    const long moved = send_some(fd(), bytes.data() + sent_, bytes.size() - sent_);
    if (moved < 0) return false;
    sent_ += static_cast<std::size_t>(moved);
    if (sent_ < bytes.size()) return true;
    out_.pop_front();
    sent_ = 0;
  }
  return true;
}

bool Link::receive(std::size_t most) {
  char piece[kMostAtOnce];
  const long moved = receive_some(fd(), piece, std::min(most, sizeof piece));
  if (moved > 0) in_.append(piece, static_cast<std::size_t>(moved));
  return moved >= 0;
}

std::size_t Link::missing() const {
  Head head;
  if (in_.size() < sizeof head) return sizeof head - in_.size();
  std::memcpy(&head, in_.data(), sizeof head);
  return sizeof head + head.bytes - in_.size();
}

bool Link::take(Hello& hello) {
  if (in_.size() < sizeof hello) return false;
  std::memcpy(&hello, in_.data(), sizeof hello);
  in_.erase(0, sizeof hello);
  return true;
}

bool Link::take(Frame& frame, uint64_t most) {
  if (in_.size() < sizeof frame.head) return false;
  std::memcpy(&frame.head, in_.data(), sizeof frame.head);
  const Head& head = frame.head;
  if (head.kind > Kind::aborted || head.bytes > most)
    fail(ErrorKind::init, "what came is no message of this library (kind ",
         static_cast<uint32_t>(head.kind), ", ", head.bytes, " bytes, at most ", most, ")");
  if (in_.size() - sizeof head < head.bytes) return false;
  frame.body.assign(in_, sizeof head, head.bytes);
  in_.erase(0, sizeof head + head.bytes);
  return true;
}

}  // namespace railshmem::tcp
