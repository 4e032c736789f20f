// What the progress thread launches where the memory that NICs work on is a GPU's.
#include "kernels/nic/moves.hpp"

namespace railshmem::device {

// A grid of any size.
RSH_KERNEL rsh_moves(moves::Batch* batch, uint64_t number, moves::Scratch* scratch) {
  moves::run(batch, number, scratch);
}

}  // namespace railshmem::device
