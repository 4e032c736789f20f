// Drivers of GPUs that are not there, for tests of what the library does with a GPU.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shmem/base/error.hpp"
#include "shmem/gpu/driver.hpp"

namespace railshmem::testing {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// The settings of tests/gpu/machine.hpp, and its standard ones otherwise.
inline void set_standin(const std::map<std::string, std::string>& settings) {
  static const char* const all[] = {"DEVICES", "MEMORY",  "PROCESSORS", "VERSION",
                                    "FABRIC",  "CROWDED", "PEERS",      "LOG"};
  for (const char* name : all) ::unsetenv(text("STANDIN_", name).c_str());
  for (const auto& setting : settings)
    ::setenv(text("STANDIN_", setting.first).c_str(), setting.second.c_str(), 1);
}

inline std::shared_ptr<gpu::Driver> standin(
    const std::map<std::string, std::string>& settings = {}) {
  set_standin(settings);
  return gpu::load_cuda(STANDIN_CUDA);
}

inline gpu::Site standin_site(const std::map<std::string, std::string>& settings = {}) {
  const gpu::Site site{standin(settings), 0};
  site.driver->use(site.device);
  return site;
}

// What CPU code reads and writes of a GPU's memory.
template <class T>
std::vector<T> values_at(gpu::Driver& driver, gpu::Address at, std::size_t count) {
  std::vector<T> out(count);
  driver.copy(reinterpret_cast<gpu::Address>(out.data()), at, count * sizeof(T), nullptr);
  return out;
}
template <class T>
void put_at(gpu::Driver& driver, gpu::Address at, const std::vector<T>& values) {
  driver.copy(at, reinterpret_cast<gpu::Address>(values.data()), values.size() * sizeof(T),
              nullptr);
  driver.synchronize(nullptr);
}

// What calls a driver has seen, in order: "name(arguments) = answer".
class CallLog {
 public:
  CallLog() : path_(text("/tmp/railshmem-standin-", ::getpid(), ".log")) { clear(); }
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;
  ~CallLog() { clear(); }

  const std::string& path() const { return path_; }
  void clear() const { std::remove(path_.c_str()); }
  std::vector<std::string> lines() const {
    std::vector<std::string> out;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) out.push_back(line);
    return out;
  }

 private:
  const std::string path_;
};

// The text of the error that the call ends in; "" where it ends in none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text_in, const std::string& part) {
  return text_in.find(part) != std::string::npos;
}

}  // namespace railshmem::testing
