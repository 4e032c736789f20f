// Collectives (9.9). All members of the team call the same one with the same arguments; dest and
// source are symmetric. Sizes are in elements, of ...mem forms in bytes. Return 0.
#pragma once

#include <cstddef>

#include "shmem/api/collectives.hpp"
#include "shmem/include/railshmem/teams.hpp"

namespace railshmem {

// Completes what this PE posted on the default context, then waits for every PE.
inline void shmem_barrier_all() {
  default_runtime().barrier_all();
}
// Waits for every PE.
inline void shmem_sync_all() {
  default_runtime().sync_all();
}
inline int shmem_team_sync(const shmem_team_t& team) {
  team_sync(default_runtime(), detail::team_of("shmem_team_sync", team));
  return 0;
}
inline int shmem_sync(const shmem_team_t& team) {
  return shmem_team_sync(team);
}

// dest = source of member PE_root, also there.
inline int shmem_broadcastmem(const shmem_team_t& team, void* dest, const void* source,
                              std::size_t nelems, int PE_root) {
  broadcast(default_runtime(), detail::team_of("shmem_broadcast", team), dest, source, nelems,
            PE_root);
  return 0;
}
template <class T>
int shmem_broadcast(const shmem_team_t& team, T* dest, const T* source, std::size_t nelems,
                    int PE_root) {
  broadcast(default_runtime(), detail::team_of("shmem_broadcast", team), dest, source,
            nelems * sizeof(T), PE_root);
  return 0;
}
// dest = all sources, in team order.
inline int shmem_fcollectmem(const shmem_team_t& team, void* dest, const void* source,
                             std::size_t nelems) {
  fcollect(default_runtime(), detail::team_of("shmem_fcollect", team), dest, source, nelems);
  return 0;
}
template <class T>
int shmem_fcollect(const shmem_team_t& team, T* dest, const T* source, std::size_t nelems) {
  fcollect(default_runtime(), detail::team_of("shmem_fcollect", team), dest, source,
           nelems * sizeof(T));
  return 0;
}
// dest = all sources, which may differ in length, in team order; dest must have room for all.
template <class T>
int shmem_collect(const shmem_team_t& team, T* dest, const T* source, std::size_t nelems) {
  Runtime& runtime = default_runtime();
  collect(runtime, detail::team_of("shmem_collect", team), dest, runtime.heap_behind(dest), source,
          nelems * sizeof(T));
  return 0;
}
inline int shmem_collectmem(const shmem_team_t& team, void* dest, const void* source,
                            std::size_t nelems) {
  return shmem_collect(team, static_cast<char*>(dest), static_cast<const char*>(source), nelems);
}
// Block j of member i goes to block i of member j.
inline int shmem_alltoallmem(const shmem_team_t& team, void* dest, const void* source,
                             std::size_t nelems) {
  alltoall(default_runtime(), detail::team_of("shmem_alltoall", team), dest, source, nelems);
  return 0;
}
template <class T>
int shmem_alltoall(const shmem_team_t& team, T* dest, const T* source, std::size_t nelems) {
  alltoall(default_runtime(), detail::team_of("shmem_alltoall", team), dest, source,
           nelems * sizeof(T));
  return 0;
}
// The same for elements dst and sst apart.
inline int shmem_alltoallsmem(const shmem_team_t& team, void* dest, const void* source,
                              std::ptrdiff_t dst, std::ptrdiff_t sst, std::size_t nelems) {
  alltoalls(default_runtime(), detail::team_of("shmem_alltoalls", team), dest, source, dst, sst,
            nelems, 1);
  return 0;
}
template <class T>
int shmem_alltoalls(const shmem_team_t& team, T* dest, const T* source, std::ptrdiff_t dst,
                    std::ptrdiff_t sst, std::size_t nelems) {
  alltoalls(default_runtime(), detail::team_of("shmem_alltoalls", team), dest, source, dst, sst,
            nelems, sizeof(T));
  return 0;
}

// ---- reductions: dest[i] = source[i] of all members combined; dest may be source ----

template <class T>
int shmem_and_reduce(const shmem_team_t& team, T* dest, const T* source, std::size_t nreduce) {
  reduce(default_runtime(), detail::team_of("shmem_and_reduce", team), dest, source, nreduce,
         element_type_of<T>(), ReduceOp::bit_and);
  return 0;
}
template <class T>
int shmem_or_reduce(const shmem_team_t& team, T* dest, const T* source, std::size_t nreduce) {
  reduce(default_runtime(), detail::team_of("shmem_or_reduce", team), dest, source, nreduce,
         element_type_of<T>(), ReduceOp::bit_or);
  return 0;
}
template <class T>
int shmem_xor_reduce(const shmem_team_t& team, T* dest, const T* source, std::size_t nreduce) {
  reduce(default_runtime(), detail::team_of("shmem_xor_reduce", team), dest, source, nreduce,
         element_type_of<T>(), ReduceOp::bit_xor);
  return 0;
}
template <class T>
int shmem_max_reduce(const shmem_team_t& team, T* dest, const T* source, std::size_t nreduce) {
  reduce(default_runtime(), detail::team_of("shmem_max_reduce", team), dest, source, nreduce,
         element_type_of<T>(), ReduceOp::max);
  return 0;
}
template <class T>
int shmem_min_reduce(const shmem_team_t& team, T* dest, const T* source, std::size_t nreduce) {
  reduce(default_runtime(), detail::team_of("shmem_min_reduce", team), dest, source, nreduce,
         element_type_of<T>(), ReduceOp::min);
  return 0;
}
template <class T>
int shmem_sum_reduce(const shmem_team_t& team, T* dest, const T* source, std::size_t nreduce) {
  reduce(default_runtime(), detail::team_of("shmem_sum_reduce", team), dest, source, nreduce,
         element_type_of<T>(), ReduceOp::sum);
  return 0;
}
template <class T>
int shmem_prod_reduce(const shmem_team_t& team, T* dest, const T* source, std::size_t nreduce) {
  reduce(default_runtime(), detail::team_of("shmem_prod_reduce", team), dest, source, nreduce,
         element_type_of<T>(), ReduceOp::prod);
  return 0;
}

}  // namespace railshmem
