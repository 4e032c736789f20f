// libfabric.so.1, opened at run time, and its objects, which close themselves.
#pragma once

#include <memory>
#include <string>

#include "shmem/base/error.hpp"
#include "shmem/nic/libfabric/abi.hpp"

namespace railshmem::nic::libfabric {

// Opened once and never closed: its providers leave threads and exit handlers behind.
class Library {
 public:
  // Throws Error(init) saying why it cannot be opened.
  static const Library& get();

  std::string version_text() const;
  std::string error_text(int error) const;  // "-110 (Connection timed out)", for a call's result

  uint32_t (*version)();
  int (*getinfo)(uint32_t version, const char* node, const char* service, uint64_t flags,
                 const abi::Info* hints, abi::Info** info);
  void (*freeinfo)(abi::Info*);
  abi::Info* (*dupinfo)(const abi::Info*);
  int (*fabric)(abi::FabricAttr*, abi::Fabric**, void* context);
  const char* (*strerror)(int error);

 private:
  Library();
};

struct FreeInfo {
  void operator()(abi::Info* info) const { Library::get().freeinfo(info); }
};
using InfoList = std::unique_ptr<abi::Info, FreeInfo>;

struct Close {
  template <class Object>
  void operator()(Object* object) const {
    object->fid.ops->close(&object->fid);
  }
};
template <class Object>
using Handle = std::unique_ptr<Object, Close>;

// What a call that must succeed returned.
inline void check(int result, const std::string& what) {
  if (result < 0) fail(ErrorKind::init, what, ": ", Library::get().error_text(result));
}

// Calls open(&object); throws Error(init) naming `what` where it fails.
template <class Object, class Open>
Handle<Object> open_object(const std::string& what, const Open& open) {
  Object* object = nullptr;
  check(open(&object), what);
  return Handle<Object>(object);
}

}  // namespace railshmem::nic::libfabric
