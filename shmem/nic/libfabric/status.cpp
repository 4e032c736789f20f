#include "shmem/nic/libfabric/status.hpp"

#include <cerrno>

#include "shmem/nic/libfabric/abi.hpp"

namespace railshmem::nic::libfabric {

Status status_of(int error) {
  switch (error) {
    case 0:
      return Status::ok;
    case -kNoSuchLocalMemory:
      return Status::local_protection;
    case EACCES:
    case EPERM:
    case EKEYREJECTED:
    case abi::kErrorNoKey:
      return Status::remote_access;
    case EMSGSIZE:
    case abi::kErrorTruncated:
      return Status::local_length;
    case abi::kErrorNoReceive:
      return Status::receiver_not_ready;
    case EINVAL:
    case EOPNOTSUPP:
    case ENOSYS:
      return Status::local_operation;
    case EREMOTEIO:
      return Status::remote_operation;
    case EFAULT:
      return Status::local_protection;
    default:  // refused, reset, timed out, canceled with its connection, and what else networks
              // have
      return Status::peer_unreachable;
  }
}

}  // namespace railshmem::nic::libfabric
