// One PE that does its part of the plan with the library, and compares.
#pragma once

#include "shmem/api/runtime.hpp"
#include "tests/stress/oracle.hpp"

namespace railshmem::stress {

// Plays `rounds` rounds drawn from `seed`; throws Error naming round and place of a difference.
// `with_atomics`: off in jobs whose rails die, where an atomic under way ends in an error.
void play(Runtime& runtime, uint64_t seed, int rounds, bool with_atomics);

}  // namespace railshmem::stress
