#include "shmem/base/error.hpp"
#include "shmem/nic/libfabric/libfabric.hpp"

namespace railshmem::nic {

std::string why_no_libfabric(const std::string&, const LibfabricSettings&) {
  return "the libfabric provider is not built yet";
}

std::unique_ptr<Provider> make_libfabric_provider(const std::string& nics,
                                                  const LibfabricSettings& settings) {
  fail(ErrorKind::init, why_no_libfabric(nics, settings));
}

}  // namespace railshmem::nic
