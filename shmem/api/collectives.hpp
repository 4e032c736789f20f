// Collectives on teams (OpenSHMEM 1.5, section 9.9). All members call the same one with the same
// arguments; dest and source are symmetric, apart from each other or, for reductions, the same.
// Every collective begins with a meeting that compares the arguments (Error(argument) on every
// member where they differ) and shows that everybody's dest may be written; it returns when this
// PE's dest is complete and its source may change.
//
// Data moves by node: over the network once per node and, in large transfers, over the rails of all
// members at once; inside a node members read each other's memory.
#pragma once

#include <cstddef>

#include "shmem/api/reduction.hpp"
#include "shmem/api/runtime.hpp"
#include "shmem/api/team.hpp"

namespace railshmem {

// Waits for every member, without completing what was posted.
void team_sync(Runtime& runtime, Team& team);

// dest = the root's source, also on the root. Sizes in bytes.
void broadcast(Runtime& runtime, Team& team, void* dest, const void* source, std::size_t bytes,
               int root);
// dest = all members' sources of `bytes` bytes, in team order.
void fcollect(Runtime& runtime, Team& team, void* dest, const void* source, std::size_t bytes);
// The same where `bytes` may differ from member to member; `dest_bytes`: room in dest, checked
// before anything moves.
void collect(Runtime& runtime, Team& team, void* dest, std::size_t dest_bytes, const void* source,
             std::size_t bytes);
// Block j of member i goes to block i of member j; `bytes` of a block.
void alltoall(Runtime& runtime, Team& team, void* dest, const void* source, std::size_t bytes);
// The same for blocks of `nelems` elements, `dst` and `sst` elements apart.
void alltoalls(Runtime& runtime, Team& team, void* dest, const void* source, std::ptrdiff_t dst,
               std::ptrdiff_t sst, std::size_t nelems, std::size_t element_bytes);
// dest[i] = source[i] of all members combined, the same bits on every member and in every run on
// the same nodes.
void reduce(Runtime& runtime, Team& team, void* dest, const void* source, std::size_t count,
            ElementType type, ReduceOp op);

}  // namespace railshmem
