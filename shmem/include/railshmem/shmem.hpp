// The OpenSHMEM operations in C++ by their names in the specification (1.5), on the default
// runtime. Typed operations are templates, and have C's names, too (typed.hpp): sizes are in
// elements; ...mem forms count bytes. Every function throws railshmem::Error: of kind argument
// before anything moves, else with what ended a wait. Operations that take a context come in two
// forms: without one they use the default context.
#pragma once

#include "shmem/include/railshmem/atomics.hpp"
#include "shmem/include/railshmem/collectives.hpp"
#include "shmem/include/railshmem/contexts.hpp"
#include "shmem/include/railshmem/locks.hpp"
#include "shmem/include/railshmem/memory.hpp"
#include "shmem/include/railshmem/order.hpp"
#include "shmem/include/railshmem/rma.hpp"
#include "shmem/include/railshmem/setup.hpp"
#include "shmem/include/railshmem/signals.hpp"
#include "shmem/include/railshmem/streams.hpp"
#include "shmem/include/railshmem/teams.hpp"
#include "shmem/include/railshmem/typed.hpp"
#include "shmem/include/railshmem/waits.hpp"
