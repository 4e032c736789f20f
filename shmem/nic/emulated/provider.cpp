#include "shmem/base/error.hpp"
#include "shmem/nic/emulated/emulated.hpp"
#include "shmem/nic/emulated/emulated_nic.hpp"
#include "shmem/nic/emulated/segments.hpp"

namespace railshmem::nic {
namespace {

class EmulatedProvider final : public Provider {
 public:
  EmulatedProvider(int pe, uint32_t rails, const EmulatedSettings& settings,
                   const std::optional<gpu::Site>& site, MoveQueue* moves)
      : site_(site),
        wakes_(settings.wakes),
        segment_(emulated::create_segment("railshmem-nics", emulated::shared_bytes(rails))) {
    emulated::open_header(emulated::header_in(*segment_));
    for (uint32_t index = 0; index < rails; ++index) {
      emulated::NicLocation location;
      location.segment = segment_->handle();
      location.pe = pe;
      location.nic = index;
      location.rail = index;
      nics_.push_back(
          std::make_unique<emulated::EmulatedNic>(location, emulated::nic_in(*segment_, index),
                                                  settings, site_ ? &*site_ : nullptr, moves));
    }
  }

  const char* name() const override { return "emulated"; }
  const std::vector<std::unique_ptr<Nic>>& nics() const override { return nics_; }
  uint32_t* sleep_word() override { return &emulated::header_in(*segment_).sleep_word; }
  bool wakes() const override { return wakes_; }
  void begin_driving() override { pthread_mutex_lock(&emulated::header_in(*segment_).driver); }
  void end_driving() override { pthread_mutex_unlock(&emulated::header_in(*segment_).driver); }

 private:
  const std::optional<gpu::Site> site_;
  const bool wakes_;
  std::shared_ptr<Segment> segment_;
  std::vector<std::unique_ptr<Nic>> nics_;
};

}  // namespace

std::unique_ptr<Provider> make_emulated_provider(int pe, uint32_t rails,
                                                 const EmulatedSettings& settings,
                                                 const std::optional<gpu::Site>& site,
                                                 MoveQueue* moves) {
  if (settings.faults.rail >= static_cast<int>(rails))
    fail(ErrorKind::init, "RAILSHMEM_FAULTS: rail ", settings.faults.rail,
         " is to go down, and the rails are 0 to ", rails - 1);
  return std::make_unique<EmulatedProvider>(pe, rails, settings, site, moves);
}

}  // namespace railshmem::nic
