#include "shmem/nic/verbs/library.hpp"

#include <dlfcn.h>

#include "shmem/base/error.hpp"

namespace railshmem::nic::verbs {
namespace {

constexpr const char* kName = "libibverbs.so.1";

// Of the versions that the library has of a function, the one whose types are those of abi.hpp.
template <class Function>
void find_newer(void* handle, const char* symbol, const char* version, Function*& into) {
  into = reinterpret_cast<Function*>(::dlvsym(handle, symbol, version));
}

template <class Function>
void find(void* handle, const char* symbol, Function*& into) {
  find_newer(handle, symbol, "IBVERBS_1.1", into);
  if (into == nullptr) fail(ErrorKind::init, kName, " has no ", symbol, ": it is too old");
}

}  // namespace

std::shared_ptr<const Library> Library::open() {
  // Never unloaded: it loads drivers of its own, which do not expect that.
  void* handle = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) fail(ErrorKind::init, "no libibverbs: ", ::dlerror());
  return std::shared_ptr<const Library>(new Library(handle));
}

Library::Library(void* handle) {
  find(handle, "ibv_get_device_list", get_device_list);
  find(handle, "ibv_free_device_list", free_device_list);
  find(handle, "ibv_get_device_name", get_device_name);
  find(handle, "ibv_open_device", open_device);
  find(handle, "ibv_close_device", close_device);
  find(handle, "ibv_query_device", query_device);
  find(handle, "ibv_query_port", query_port);
  find(handle, "ibv_query_gid", query_gid);
  find(handle, "ibv_alloc_pd", alloc_pd);
  find(handle, "ibv_dealloc_pd", dealloc_pd);
  find(handle, "ibv_reg_mr", reg_mr);
  find(handle, "ibv_dereg_mr", dereg_mr);
  find(handle, "ibv_create_cq", create_cq);
  find(handle, "ibv_destroy_cq", destroy_cq);
  find(handle, "ibv_create_qp", create_qp);
  find(handle, "ibv_modify_qp", modify_qp);
  find(handle, "ibv_destroy_qp", destroy_qp);
  find(handle, "ibv_get_async_event", get_async_event);
  find(handle, "ibv_ack_async_event", ack_async_event);
  find_newer(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8", reg_mr_iova2);
  find_newer(handle, "ibv_reg_dmabuf_mr", "IBVERBS_1.12", reg_dmabuf_mr);
}

}  // namespace railshmem::nic::verbs
