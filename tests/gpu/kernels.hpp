// The entry kernels of kernels/entry, compiled for the host, as a module of a GPU: found by their
// names, called with an array of pointers to their arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace railshmem::standin {

// With its arguments, which are copied when it is launched: one block's run of it.
using BoundKernel = std::function<void()>;

struct EntryKernel {
  const char* name;
  BoundKernel (*bind)(void** arguments);
};

template <class... Arguments, std::size_t... I>
BoundKernel bind_arguments(void (*kernel)(Arguments...), void** arguments,
                           std::index_sequence<I...>) {
  std::tuple<std::decay_t<Arguments>...> values(
      *static_cast<std::decay_t<Arguments>*>(arguments[I])...);
  return [kernel, values] { std::apply(kernel, values); };
}
template <class... Arguments>
BoundKernel bind_arguments(void (*kernel)(Arguments...), void** arguments) {
  return bind_arguments(kernel, arguments, std::index_sequence_for<Arguments...>());
}
template <auto Kernel>
constexpr EntryKernel entry(const char* name) {
  return {name, [](void** arguments) { return bind_arguments(Kernel, arguments); }};
}

// Generated: one list for each file of kernels/entry.
std::vector<EntryKernel> all_entry_kernels();

// All blocks at once, each on a thread of its own; or one after the other, which is how blocks of a
// plain launch may run: none can rely on another to make progress.
void run_blocks(const BoundKernel& kernel, uint32_t blocks, bool at_once);

}  // namespace railshmem::standin
