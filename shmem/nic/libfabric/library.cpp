#include "shmem/nic/libfabric/library.hpp"

#include <dlfcn.h>

namespace railshmem::nic::libfabric {
namespace {

constexpr const char* kFile = "libfabric.so.1";

template <class Function>
void find(void* library, const char* symbol, Function*& into) {
  into = reinterpret_cast<Function*>(::dlsym(library, symbol));
  if (into == nullptr) fail(ErrorKind::init, kFile, " has no ", symbol);
}

}  // namespace

const Library& Library::get() {
  static const Library library;
  return library;
}

Library::Library() {
  void* library = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(ErrorKind::init, "libfabric cannot be opened: ", ::dlerror());
  find(library, "fi_version", version);
  find(library, "fi_getinfo", getinfo);
  find(library, "fi_freeinfo", freeinfo);
  find(library, "fi_dupinfo", dupinfo);
  find(library, "fi_fabric", fabric);
  find(library, "fi_strerror", strerror);
  if (version() < abi::kVersion)
    fail(ErrorKind::init, "libfabric ", version_text(),
         " is too old: 1.9 is the first that will do");
}

std::string Library::version_text() const {
  return text(version() >> 16, ".", version() & 0xffff);
}

std::string Library::error_text(int error) const {
  return text(error, " (", strerror(error < 0 ? -error : error), ")");
}

}  // namespace railshmem::nic::libfabric
