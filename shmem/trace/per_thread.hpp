// A part of something for each thread that uses it, found again by one comparison: what is written
// on a hot path needs neither lock nor atomic read-modify-write. A part outlives its thread, and
// the next thread for which it is fit takes it over.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace railshmem::trace {

template <class Part>
class PerThread {
 public:
  // The calling thread's part. On its first call here: a part that a thread has left and that
  // `fits`, else what `make` returns.
  template <class Fits, class Make>
  Part& mine(const Fits& fits, const Make& make) {
    if (latest_.parts == parts_.get()) return *latest_.part;
    return find_or_take(fits, make);
  }

  // Looks at every part, also of threads that have ended, while no part can be taken or left.
  template <class Look>
  void for_each(const Look& look) const {
    const std::lock_guard<std::mutex> held(parts_->mutex);
    for (const auto& part : parts_->all) look(*part);
  }

 private:
  struct Parts {
    std::mutex mutex;
    std::vector<std::unique_ptr<Part>> all;
    std::vector<Part*> left;  // by threads that have ended
  };
  // A thread's hold on its part. It keeps the parts alive, so that no later owner can have their
  // address while a thread still compares with it.
  struct Lease {
    std::shared_ptr<Parts> parts;
    Part* part;

    Lease(std::shared_ptr<Parts> of, Part* taken) : parts(std::move(of)), part(taken) {}
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = default;
    ~Lease() {
      if (!parts) return;
      const std::lock_guard<std::mutex> held(parts->mutex);
      parts->left.push_back(part);
    }
  };
  struct Latest {
    const Parts* parts = nullptr;
    Part* part = nullptr;
  };

  template <class Fits, class Make>
  Part& find_or_take(const Fits& fits, const Make& make) {
    for (const Lease& lease : leases_)
      if (lease.parts == parts_) {
        latest_ = {parts_.get(), lease.part};
        return *lease.part;
      }
    Part& part = take(fits, make);
    // Owners that are gone left their parts to this thread alone.
    for (std::size_t i = leases_.size(); i-- > 0;)
      if (leases_[i].parts.use_count() == 1)
        leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(i));
    leases_.emplace_back(parts_, &part);
    latest_ = {parts_.get(), &part};
    return part;
  }

  template <class Fits, class Make>
  Part& take(const Fits& fits, const Make& make) {
    const std::lock_guard<std::mutex> held(parts_->mutex);
    std::vector<Part*>& left = parts_->left;
    for (std::size_t i = 0; i < left.size(); ++i)
      if (fits(*left[i])) {
        Part& found = *left[i];
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
        return found;
      }
    parts_->all.push_back(make());
    return *parts_->all.back();
  }

  std::shared_ptr<Parts> parts_ = std::make_shared<Parts>();
  static inline thread_local std::vector<Lease> leases_;
  // Reached without a call also from a module that is loaded late: 16 bytes of the room that the
  // loader keeps for such.
  [[gnu::tls_model("initial-exec")]] static inline thread_local Latest latest_;
};

}  // namespace railshmem::trace
