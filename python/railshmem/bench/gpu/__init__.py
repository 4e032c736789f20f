"""`railshmem bench KIND --device cuda`: what kernels reach, beside kernels without the library."""
