// CPU code that loads or stores a GPU's memory dies on a real machine, so it dies here: GPU memory
// carries a protection key that only the threads which stand for the GPU may use. Where the
// processor has no such keys, nothing is found.
#pragma once

#include <cstddef>

namespace railshmem::standin {

// Gives the pages the rights of GPU memory that is mapped: reads and writes, for the GPU.
bool give_to_gpu(void* at, std::size_t bytes);

// This thread, and those that it starts, stand for the GPU from now on.
void become_gpu();

}  // namespace railshmem::standin
