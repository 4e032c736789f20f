#include "shmem/bootstrap/bootstrap.hpp"

#include <cstring>

namespace railshmem {

void Bootstrap::alltoall(const void* mine, std::size_t bytes, void* theirs) {
  const auto n = static_cast<std::size_t>(size());
  std::vector<char> all(n * n * bytes);
  allgather(mine, n * bytes, all.data());
  for (std::size_t from = 0; from < n && bytes > 0; ++from)
    std::memcpy(static_cast<char*>(theirs) + from * bytes,
                all.data() + (from * n + static_cast<std::size_t>(rank())) * bytes, bytes);
}

}  // namespace railshmem
