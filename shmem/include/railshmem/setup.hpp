// Setup, exit and queries (9.1), thread levels (9.2).
#pragma once

#include <memory>
#include <string>

#include "shmem/api/default_runtime.hpp"

namespace railshmem {

constexpr int SHMEM_MAJOR_VERSION = 1;
constexpr int SHMEM_MINOR_VERSION = 5;
constexpr int SHMEM_MAX_NAME_LEN = 64;
constexpr const char* SHMEM_VENDOR_STRING = "RailSHMEM";

enum ThreadLevel : int {
  SHMEM_THREAD_SINGLE,
  SHMEM_THREAD_FUNNELED,
  SHMEM_THREAD_SERIALIZED,
  SHMEM_THREAD_MULTIPLE,
};

// Collective: joins the job of `bootstrap`; a second call before shmem_finalize is refused.
inline void shmem_init(std::shared_ptr<Bootstrap> bootstrap,
                       const Settings& settings = read_settings_from_environment()) {
  const auto current = find_default_runtime();
  if (current && !current->finalized())
    fail(ErrorKind::argument, "shmem_init: already initialised; call shmem_finalize first");
  set_default_runtime(std::make_shared<Runtime>(std::move(bootstrap), settings));
}
// The same; any level is given as SHMEM_THREAD_MULTIPLE. Returns 0.
inline int shmem_init_thread(int requested, int* provided, std::shared_ptr<Bootstrap> bootstrap,
                             const Settings& settings = read_settings_from_environment()) {
  if (requested < SHMEM_THREAD_SINGLE || requested > SHMEM_THREAD_MULTIPLE)
    fail(ErrorKind::argument, "shmem_init_thread: level ", requested, ": expected 0 to 3");
  shmem_init(std::move(bootstrap), settings);
  *provided = SHMEM_THREAD_MULTIPLE;
  return 0;
}
inline void shmem_query_thread(int* provided) {
  default_runtime();
  *provided = SHMEM_THREAD_MULTIPLE;
}
// Collective: completes all communication. A second call does nothing.
inline void shmem_finalize() {
  if (const auto current = find_default_runtime()) current->finalize();
}
// Ends the whole job with this exit code.
[[noreturn]] inline void shmem_global_exit(int status) {
  default_runtime().bootstrap().abort(status, "shmem_global_exit");
  std::exit(status);  // where the bootstrap has no job to end
}
inline int shmem_my_pe() {
  return default_runtime().my_pe();
}
inline int shmem_n_pes() {
  return default_runtime().n_pes();
}
// 1 when this PE can reach `pe`, which holds for every PE of the job once it runs.
inline int shmem_pe_accessible(int pe) {
  return pe >= 0 && pe < default_runtime().n_pes() ? 1 : 0;
}
// 1 when `address` is symmetric and `pe` can be reached.
inline int shmem_addr_accessible(const void* address, int pe) {
  return shmem_pe_accessible(pe) != 0 && default_runtime().in_heap(address, 1) ? 1 : 0;
}
inline void shmem_info_get_version(int* major, int* minor) {
  *major = SHMEM_MAJOR_VERSION;
  *minor = SHMEM_MINOR_VERSION;
}
// `name` has room for SHMEM_MAX_NAME_LEN characters.
inline void shmem_info_get_name(char* name) {
  const std::string vendor = SHMEM_VENDOR_STRING;
  name[vendor.copy(name, SHMEM_MAX_NAME_LEN - 1)] = '\0';
}

}  // namespace railshmem
