// What the progress thread launches where the memory that NICs work on is a GPU's.
#include "kernels/nic/moves.hpp"

namespace railshmem::moves {

// A grid of any size.
RSH_KERNEL rsh_moves(Batch* batch, uint64_t number, Scratch* scratch) {
  run(batch, number, scratch);
}

}  // namespace railshmem::moves
