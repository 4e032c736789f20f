// Memory ordering (9.11).
#pragma once

#include "shmem/include/railshmem/contexts.hpp"

namespace railshmem {

// What was posted to each PE before takes effect there before what is posted after.
inline void shmem_fence() {
  default_runtime().default_context().fence();
}
template <class C, class = detail::IfContext<C>>
void shmem_ctx_fence(const C& ctx) {
  detail::context_of(ctx).fence();
}
// What was posted is complete and visible at its targets.
inline void shmem_quiet() {
  default_runtime().default_context().quiet();
}
template <class C, class = detail::IfContext<C>>
void shmem_ctx_quiet(const C& ctx) {
  detail::context_of(ctx).quiet();
}

}  // namespace railshmem
