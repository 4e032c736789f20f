// What a driver answers, by the numbers that NVIDIA's and AMD's have in common.
#pragma once

namespace railshmem::standin {

enum Answer : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kGridTooLarge = 720,
  kNotPermitted = 800,
  kNotSupported = 801,
  kUnknown = 999,
};
const char* text_of(int answer);

// Thrown by what carries out a call, and answered by it.
struct Refusal {
  Answer answer;
};

// What a real driver requires of a call, too.
inline void require(bool holds, Answer otherwise = kInvalidValue) {
  if (!holds) throw Refusal{otherwise};
}

}  // namespace railshmem::standin
