#include "shmem/api/waits.hpp"

#include <type_traits>

#include "kernels/shmem/wait.hpp"
#include "shmem/api/runtime_parts.hpp"

namespace railshmem {

using device::Compare;
using device::Waiter;
using device::Waiting;

namespace {

// Where words_any starts to look: in turn, so that a word that always compares hides no other.
thread_local std::size_t next_start = 0;

template <class T>
void check(const Runtime& runtime, const char* call, const Words<T>& what) {
  runtime.parts().require_usable();
  if (what.count == 0) return;
  runtime.parts().check_word(call, "ivars", what.words, sizeof(T));
  if (!runtime.in_heap(what.words, what.count * sizeof(T)))
    runtime.parts().refuse_address(call, "ivars", what.words, what.count * sizeof(T));
}

template <class T>
bool compares(const Runtime& runtime, const Words<T>& what, std::size_t index, Compare compare) {
  // Acquire pairs with the release of the store, atomic or NIC write that changed the word.
  return device::holds(compare, runtime.parts().memory.load(what.words + index),
                       what.values[what.values_differ ? index : 0]);
}

template <class T>
bool takes_part(const Words<T>& what, std::size_t index) {
  return what.status == nullptr || what.status[index] == 0;
}

template <class T>
bool any_takes_part(const Words<T>& what) {
  for (std::size_t index = 0; index < what.count; ++index)
    if (takes_part(what, index)) return true;
  return false;
}

// The first word of those that take part for which the comparison is `wanted`, from `start` on.
template <class T>
std::size_t find(const Runtime& runtime, const Words<T>& what, Compare compare, bool wanted,
                 std::size_t start = 0) {
  for (std::size_t i = 0; i < what.count; ++i) {
    const std::size_t index = (start + i) % what.count;
    if (takes_part(what, index) && compares(runtime, what, index, compare) == wanted) return index;
  }
  return kNoIndex;
}

template <class T>
std::vector<std::size_t> find_every(const Runtime& runtime, const Words<T>& what, Compare compare) {
  std::vector<std::size_t> found;
  for (std::size_t index = 0; index < what.count; ++index)
    if (takes_part(what, index) && compares(runtime, what, index, compare)) found.push_back(index);
  return found;
}

// For the report of a wait for one of many: the first that takes part.
template <class T>
Waiter waiter_for(const Runtime& runtime, const Words<T>& what, std::size_t index,
                  Waiting waiting = Waiting::word) {
  const device::DeviceContext* ctx = &runtime.context();
  return Waiter(ctx, waiting, -1, device::offset_of(ctx, what.words + index),
                static_cast<uint64_t>(what.values[what.values_differ ? index : 0]));
}

template <class T>
uint64_t seen(const Runtime& runtime, const Words<T>& what, std::size_t index) {
  return static_cast<uint64_t>(runtime.parts().memory.load(what.words + index));
}

// Waits until `look` finds something.
template <class T, class Look>
void wait_for(Runtime& runtime, const Words<T>& what, const Look& look) {
  std::size_t first = 0;
  while (!takes_part(what, first)) ++first;
  Waiter waiter = waiter_for(runtime, what, first);
  while (!look())
    if (!waiter.again(seen(runtime, what, first))) {
      if (look()) return;  // it may have come just before the stop
      runtime.parts().raise_stopped();
    }
}

template <class T>
T wait_word(Runtime& runtime, const char* call, const T* word, Compare compare, T value,
            Waiting waiting) {
  check(runtime, call, Words<T>{word, 1, nullptr, &value, false});
  T last = 0;
  const HeapMemory& memory = runtime.parts().memory;
  if (!memory.on_gpu()) {
    if (!device::wait_until(&runtime.context(), word, compare, value, &last, waiting))
      runtime.parts().raise_stopped();
    return last;
  }
  last = memory.load(word);
  if (device::holds(compare, last, value)) return last;
  Waiter waiter = waiter_for(runtime, Words<T>{word, 1, nullptr, &value, false}, 0, waiting);
  while (!device::holds(compare, last, value)) {
    const bool stop = !waiter.again(static_cast<uint64_t>(last));
    last = memory.load(word);  // also after a stop: the word may have come just before it
    if (stop && !device::holds(compare, last, value)) runtime.parts().raise_stopped();
  }
  return last;
}

}  // namespace

template <class T>
T wait_until(Runtime& runtime, const T* word, Compare compare, T value) {
  return wait_word(runtime, "shmem_wait_until", word, compare, value, Waiting::word);
}

template <class T>
bool test(Runtime& runtime, const T* word, Compare compare, T value) {
  const Words<T> what{word, 1, nullptr, &value, false};
  check(runtime, "shmem_test", what);
  return compares(runtime, what, 0, compare);
}

uint64_t signal_fetch(Runtime& runtime, const uint64_t* signal) {
  check(runtime, "shmem_signal_fetch", Words<uint64_t>{signal, 1, nullptr, nullptr, false});
  return runtime.parts().memory.load(signal);
}

uint64_t signal_wait_until(Runtime& runtime, const uint64_t* signal, Compare compare,
                           uint64_t value) {
  return wait_word(runtime, "shmem_signal_wait_until", signal, compare, value, Waiting::signal);
}

template <class T>
void wait_until_all(Runtime& runtime, const Words<T>& what, Compare compare) {
  check(runtime, "shmem_wait_until_all", what);
  // A word that compared may change again: only what a look still misses is waited for.
  for (std::size_t index = 0; index < what.count; ++index) {
    if (!takes_part(what, index) || compares(runtime, what, index, compare)) continue;
    Waiter waiter = waiter_for(runtime, what, index);
    while (!compares(runtime, what, index, compare))
      if (!waiter.again(seen(runtime, what, index)) && !compares(runtime, what, index, compare))
        runtime.parts().raise_stopped();
  }
}

template <class T>
std::size_t wait_until_any(Runtime& runtime, const Words<T>& what, Compare compare) {
  check(runtime, "shmem_wait_until_any", what);
  if (!any_takes_part(what)) return kNoIndex;
  std::size_t found = kNoIndex;
  wait_for(runtime, what, [&] {
    found = find(runtime, what, compare, true, next_start % what.count);
    return found != kNoIndex;
  });
  next_start = found + 1;
  return found;
}

template <class T>
std::vector<std::size_t> wait_until_some(Runtime& runtime, const Words<T>& what, Compare compare) {
  check(runtime, "shmem_wait_until_some", what);
  std::vector<std::size_t> found;
  if (!any_takes_part(what)) return found;
  wait_for(runtime, what, [&] {
    found = find_every(runtime, what, compare);
    return !found.empty();
  });
  return found;
}

template <class T>
bool test_all(Runtime& runtime, const Words<T>& what, Compare compare) {
  check(runtime, "shmem_test_all", what);
  return find(runtime, what, compare, false) == kNoIndex;
}

template <class T>
std::size_t test_any(Runtime& runtime, const Words<T>& what, Compare compare) {
  check(runtime, "shmem_test_any", what);
  if (what.count == 0) return kNoIndex;
  const std::size_t found = find(runtime, what, compare, true, next_start % what.count);
  if (found != kNoIndex) next_start = found + 1;
  return found;
}

template <class T>
std::vector<std::size_t> test_some(Runtime& runtime, const Words<T>& what, Compare compare) {
  check(runtime, "shmem_test_some", what);
  return find_every(runtime, what, compare);
}

#define RAILSHMEM_WAITS(T)                                                                  \
  template T wait_until<T>(Runtime&, const T*, Compare, T);                                 \
  template bool test<T>(Runtime&, const T*, Compare, T);                                    \
  template void wait_until_all<T>(Runtime&, const Words<T>&, Compare);                      \
  template std::size_t wait_until_any<T>(Runtime&, const Words<T>&, Compare);               \
  template std::vector<std::size_t> wait_until_some<T>(Runtime&, const Words<T>&, Compare); \
  template bool test_all<T>(Runtime&, const Words<T>&, Compare);                            \
  template std::size_t test_any<T>(Runtime&, const Words<T>&, Compare);                     \
  template std::vector<std::size_t> test_some<T>(Runtime&, const Words<T>&, Compare);
RAILSHMEM_WAITS(int)
RAILSHMEM_WAITS(unsigned)
RAILSHMEM_WAITS(long)
RAILSHMEM_WAITS(unsigned long)
RAILSHMEM_WAITS(long long)
RAILSHMEM_WAITS(unsigned long long)
#undef RAILSHMEM_WAITS

}  // namespace railshmem
