#include "shmem/base/error.hpp"
#include "shmem/nic/verbs/verbs.hpp"
#include "shmem/nic/verbs/verbs_nic.hpp"

namespace railshmem::nic {
namespace {

class VerbsProvider final : public Provider {
 public:
  VerbsProvider(const std::string& nics, const VerbsSettings& settings,
                const std::optional<gpu::Site>& site) {
    const auto library = verbs::Library::open();
    verbs::FoundPorts found = verbs::find_ports(library, nics, settings);
    if (found.usable.empty()) fail(ErrorKind::init, found.why_not);
    for (verbs::OpenPort& open : found.usable)
      nics_.push_back(std::make_unique<verbs::VerbsNic>(library, std::move(open), settings, site));
  }

  const char* name() const override { return "verbs"; }
  const std::vector<std::unique_ptr<Nic>>& nics() const override { return nics_; }
  uint32_t* sleep_word() override { return &sleep_word_; }
  bool wakes() const override { return false; }
  void begin_driving() override {}
  void end_driving() override {}

 private:
  uint32_t sleep_word_ = 0;
  std::vector<std::unique_ptr<Nic>> nics_;
};

}  // namespace

std::string why_no_verbs(const std::string& nics, const VerbsSettings& settings) {
  try {
    const verbs::FoundPorts found = verbs::find_ports(verbs::Library::open(), nics, settings);
    return found.usable.empty() ? found.why_not : "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::unique_ptr<Provider> make_verbs_provider(const std::string& nics,
                                              const VerbsSettings& settings,
                                              const std::optional<gpu::Site>& site) {
  return std::make_unique<VerbsProvider>(nics, settings, site);
}

}  // namespace railshmem::nic
