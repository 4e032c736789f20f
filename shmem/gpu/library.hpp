// A driver's shared library, opened at run time.
#pragma once

#include <dlfcn.h>

#include <string>

#include "shmem/base/error.hpp"

namespace railshmem::gpu {

class Library {
 public:
  // Throws Error(gpu) saying why it cannot be opened.
  Library(const std::string& path, const char* system_name)
      : path_(path.empty() ? system_name : path),
        handle_(::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) fail(ErrorKind::gpu, "no GPU driver: ", ::dlerror());
  }
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // For what older drivers lack: null there.
  template <class Function>
  void find_newer(const char* symbol, Function*& into) const {
    into = reinterpret_cast<Function*>(::dlsym(handle_, symbol));
  }

  template <class Function>
  void find(const char* symbol, Function*& into) const {
    into = reinterpret_cast<Function*>(::dlsym(handle_, symbol));
    if (into == nullptr)
      fail(ErrorKind::gpu, path_, " has no ", symbol, ": this GPU driver is too old");
  }

 private:
  const std::string path_;
  void* handle_;
};

}  // namespace railshmem::gpu
