#include "shmem/base/error.hpp"
#include "shmem/nic/libfabric/libfabric.hpp"
#include "shmem/nic/libfabric/libfabric_nic.hpp"

namespace railshmem::nic {
namespace {

class LibfabricProvider final : public Provider {
 public:
  explicit LibfabricProvider(std::vector<libfabric::Found> found) {
    for (libfabric::Found& one : found)
      nics_.push_back(std::make_unique<libfabric::LibfabricNic>(std::move(one)));
  }

  const char* name() const override { return "libfabric"; }
  const std::vector<std::unique_ptr<Nic>>& nics() const override { return nics_; }
  uint32_t* sleep_word() override { return &sleep_word_; }
  bool wakes() const override { return false; }
  void begin_driving() override {}
  void end_driving() override {}

 private:
  alignas(64) uint32_t sleep_word_ = 0;
  std::vector<std::unique_ptr<Nic>> nics_;
};

}  // namespace

std::string why_no_libfabric(const std::string& nics, const LibfabricSettings& settings) {
  try {
    libfabric::discover(nics, settings);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::unique_ptr<Provider> make_libfabric_provider(const std::string& nics,
                                                  const LibfabricSettings& settings) {
  return std::make_unique<LibfabricProvider>(libfabric::discover(nics, settings));
}

}  // namespace railshmem::nic
