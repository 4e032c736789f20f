#include "shmem/base/error.hpp"
#include "shmem/nic/verbs/verbs.hpp"

namespace railshmem::nic {

std::string why_no_verbs(const std::string&, const VerbsSettings&) {
  return "the verbs provider is not built yet";
}

std::unique_ptr<Provider> make_verbs_provider(const std::string& nics,
                                              const VerbsSettings& settings,
                                              const std::optional<gpu::Site>&) {
  fail(ErrorKind::init, why_no_verbs(nics, settings));
}

}  // namespace railshmem::nic
