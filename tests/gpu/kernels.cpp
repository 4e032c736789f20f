#include "tests/gpu/kernels.hpp"

#include "kernels/arch/launch.hpp"

namespace railshmem::standin {

void run_blocks(const BoundKernel& kernel, uint32_t blocks, bool at_once) {
  if (at_once) return arch::launch(blocks, kernel);
  for (uint32_t block = 0; block < blocks; ++block) {
    arch::this_block = {block, blocks, nullptr};
    kernel();
  }
}

}  // namespace railshmem::standin
