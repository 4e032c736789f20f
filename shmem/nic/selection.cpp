#include "shmem/nic/selection.hpp"

#include <fnmatch.h>

#include <algorithm>

#include "shmem/base/error.hpp"

namespace railshmem::nic {

Selection::Selection(const std::string& setting) {
  if (setting.empty()) return;
  exclude_ = setting[0] == '^';
  std::size_t at = exclude_ ? 1 : 0;
  while (at <= setting.size()) {
    const std::size_t end = std::min(setting.find(',', at), setting.size());
    const std::string pattern = setting.substr(at, end - at);
    if (pattern.empty() || pattern.find('^') != std::string::npos)
      fail(ErrorKind::init, "RAILSHMEM_NICS=", setting,
           ": expected names joined by commas, with one ^ in front to take all but those");
    patterns_.push_back(pattern);
    at = end + 1;
  }
}

bool Selection::takes(const std::vector<std::string>& names) const {
  if (patterns_.empty()) return true;
  const bool listed = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
      return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
  });
  return listed != exclude_;
}

}  // namespace railshmem::nic
