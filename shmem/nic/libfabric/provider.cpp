#include <poll.h>
#include <sched.h>

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
  bool sleep(uint64_t ns) override;
  void begin_driving() override {}
  void end_driving() override {}

 private:
  alignas(64) uint32_t sleep_word_ = 0;
  std::vector<std::unique_ptr<Nic>> nics_;
};

bool LibfabricProvider::sleep(uint64_t ns) {
  std::vector<pollfd> polled;
  for (const auto& nic : nics_) {
    int descriptor = -1;
    bool possible = false;
    if (!static_cast<libfabric::LibfabricNic&>(*nic).arm(&descriptor, &possible)) {
      sched_yield();
      return true;
    }
    if (!possible) return false;
    if (descriptor >= 0) polled.push_back({descriptor, POLLIN, 0});
  }
  const timespec limit{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  ::ppoll(polled.data(), polled.size(), &limit, nullptr);
  return true;
}

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
