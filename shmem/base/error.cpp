#include "shmem/base/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace railshmem {

std::string errno_text() {
  const int code = errno;
  return text("errno ", code, " (", std::strerror(code), ")");
}

std::string bytes_text(unsigned long long bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  char out[32];
  std::snprintf(out, sizeof out, "%.4g %s", value, units[unit]);
  return out;
}

}  // namespace railshmem
