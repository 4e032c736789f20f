// Which of a host's NICs a job may use: RAILSHMEM_NICS.
#pragma once

#include <string>
#include <vector>

namespace railshmem::nic {

// "mlx5_0,mlx5_1:1" takes those, "^eth0,docker*" all but those, "" all.
class Selection {
 public:
  // Throws Error(init) for a list without names, or with a ^ inside.
  explicit Selection(const std::string& setting);

  // `names`: what people call the NIC: its device, device:port, its network interface.
  bool takes(const std::vector<std::string>& names) const;

 private:
  bool exclude_ = false;
  std::vector<std::string> patterns_;
};

}  // namespace railshmem::nic
