// Waiting for and testing words of this PE's heap that others change (OpenSHMEM 1.5, section 9.10).
// T is an integer of 4 or 8 bytes. Where `status` is given, words whose status is not 0 are left
// out. What is left out, or nothing at all, satisfies `all` at once; `any` and `some` then find
// nothing. Throws Error(argument) before it waits, else what ended the wait: Error(timeout) says
// which word, what was expected and seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "shmem/api/runtime.hpp"

namespace railshmem {

constexpr std::size_t kNoIndex = SIZE_MAX;

// `count` words, each compared with its own value, or all with the first.
template <class T>
struct Words {
  const T* words;
  std::size_t count;
  const int* status;  // [count] or null
  const T* values;    // [count] or [1]
  bool values_differ;
};

// ---- one word ----

// Returns the value that satisfied the comparison.
template <class T>
T wait_until(Runtime& runtime, const T* word, device::Compare compare, T value);
template <class T>
bool test(Runtime& runtime, const T* word, device::Compare compare, T value);
// The current value of a signal word, read so that data put before it is visible.
uint64_t signal_fetch(Runtime& runtime, const uint64_t* signal);
uint64_t signal_wait_until(Runtime& runtime, const uint64_t* signal, device::Compare compare,
                           uint64_t value);

// ---- many ----

template <class T>
void wait_until_all(Runtime& runtime, const Words<T>& what, device::Compare compare);
// The index of a word that compares. Words are looked at in turn from call to call, so that none
// is passed over for ever.
template <class T>
std::size_t wait_until_any(Runtime& runtime, const Words<T>& what, device::Compare compare);
// The indices of all words that compare: at least one.
template <class T>
std::vector<std::size_t> wait_until_some(Runtime& runtime, const Words<T>& what,
                                         device::Compare compare);
template <class T>
bool test_all(Runtime& runtime, const Words<T>& what, device::Compare compare);
template <class T>
std::size_t test_any(Runtime& runtime, const Words<T>& what, device::Compare compare);
template <class T>
std::vector<std::size_t> test_some(Runtime& runtime, const Words<T>& what, device::Compare compare);

}  // namespace railshmem
