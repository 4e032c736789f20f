// The part of libfabric's binary interface that this provider uses (libfabric.so.1, interface 1.9
// and later). Structures only ever grow at their end, so those that libfabric allocates end here
// with the last member that is read, and none of them is ever created or copied by its size; those
// that we pass in are whole. tests/cpp/test_libfabric_abi.cpp compares all of it with the header
// where that is installed.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace railshmem::nic::libfabric::abi {

constexpr uint32_t version(uint32_t major, uint32_t minor) {
  return major << 16 | minor;
}
constexpr uint32_t kVersion = version(1, 9);

// Capabilities and flags of operations.
constexpr uint64_t kRma = 1ull << 2;
constexpr uint64_t kTagged = 1ull << 3;
constexpr uint64_t kRead = 1ull << 8;
constexpr uint64_t kWrite = 1ull << 9;
constexpr uint64_t kRecv = 1ull << 10;
constexpr uint64_t kSend = 1ull << 11;
constexpr uint64_t kRemoteRead = 1ull << 12;
constexpr uint64_t kRemoteWrite = 1ull << 13;
constexpr uint64_t kCompletion = 1ull << 24;
constexpr uint64_t kDeliveryComplete = 1ull << 28;

// Modes: what the provider asks of the caller.
constexpr uint64_t kContext = 1ull << 59;   // the first 32 bytes at an operation's context are its
constexpr uint64_t kContext2 = 1ull << 52;  // the first 64

// Order.
constexpr uint64_t kOrderWaw = 1ull << 4;
constexpr uint64_t kOrderRmaWaw = 1ull << 35;

// Modes of registered memory.
constexpr int kMrLocal = 1 << 2;      // local buffers need a descriptor
constexpr int kMrVirtAddr = 1 << 4;   // peers name addresses, not offsets
constexpr int kMrAllocated = 1 << 5;  // memory must be there when it is registered
constexpr int kMrProvKey = 1 << 6;    // the provider chooses the keys
constexpr int kMrEndpoint = 1 << 9;   // regions are bound to an endpoint and enabled

enum Progress : int { kProgressUnspecified, kProgressAuto, kProgressManual };
enum Threading : int { kThreadUnspecified, kThreadSafe, kThreadFid, kThreadDomain };
enum EndpointType : int { kEndpointReliableDatagram = 3 };
enum AddressFormat : uint32_t { kSockaddr = 1, kSockaddrIn = 2, kSockaddrIn6 = 3 };
enum CqFormat : int { kCqTagged = 4 };
enum Control : int { kGetWait = 5, kEnable = 6 };
enum WaitObject : int { kWaitNone = 0, kWaitFd = 3 };

using Address = uint64_t;  // an entry of an address vector
constexpr Address kNoAddress = ~uint64_t{0};

// Error numbers beyond errno's; calls return them negated.
constexpr int kErrorAvailable = 259;
constexpr int kErrorTruncated = 265;
constexpr int kErrorNoKey = 266;
constexpr int kErrorNoReceive = 269;

struct Fid;

struct TxAttr {
  uint64_t caps;
  uint64_t mode;
  uint64_t op_flags;
  uint64_t msg_order;
  uint64_t comp_order;
  std::size_t inject_size;
  std::size_t size;
};

struct RxAttr {
  uint64_t caps;
  uint64_t mode;
  uint64_t op_flags;
  uint64_t msg_order;
  uint64_t comp_order;
  std::size_t total_buffered_recv;
  std::size_t size;
};

struct EpAttr {
  int type;
  uint32_t protocol;
  uint32_t protocol_version;
  std::size_t max_msg_size;
  std::size_t msg_prefix_size;
  std::size_t max_order_raw_size;
  std::size_t max_order_war_size;
  std::size_t max_order_waw_size;
  uint64_t mem_tag_format;
};

struct DomainAttr {
  Fid* domain;
  char* name;
  int threading;
  int control_progress;
  int data_progress;
  int resource_mgmt;
  int av_type;
  int mr_mode;
  std::size_t mr_key_size;
};

struct FabricAttr {
  Fid* fabric;
  char* name;
  char* prov_name;
  uint32_t prov_version;
};

struct Info {
  Info* next;
  uint64_t caps;
  uint64_t mode;
  uint32_t addr_format;
  std::size_t src_addrlen;
  std::size_t dest_addrlen;
  void* src_addr;
  void* dest_addr;
  Fid* handle;
  TxAttr* tx_attr;
  RxAttr* rx_attr;
  EpAttr* ep_attr;
  DomainAttr* domain_attr;
  FabricAttr* fabric_attr;
};

// Objects begin with their tables of calls.
struct FidOps {
  std::size_t size;
  int (*close)(Fid*);
  int (*bind)(Fid*, Fid* to, uint64_t flags);
  int (*control)(Fid*, int command, void* argument);
};

struct Fid {
  std::size_t fclass;
  void* context;
  FidOps* ops;
};

struct AvAttr {
  int type;  // 0: the provider's choice
  int rx_ctx_bits;
  std::size_t count;
  std::size_t ep_per_node;
  const char* name;
  void* map_addr;
  uint64_t flags;
};

struct CqAttr {
  std::size_t size;
  uint64_t flags;
  int format;
  int wait_obj;
  int signaling_vector;
  int wait_cond;
  void* wait_set;
};

struct Domain;
struct Av;
struct Cq;
struct Ep;
struct Mr;

struct FabricOps {
  std::size_t size;
  int (*domain)(struct Fabric*, Info*, Domain**, void* context);
  int (*passive_ep)();
  int (*eq_open)();
  int (*wait_open)();
  int (*trywait)(struct Fabric*, Fid** fids, int count);
};
struct Fabric {
  Fid fid;
  FabricOps* ops;
};

struct DomainOps {
  std::size_t size;
  int (*av_open)(Domain*, AvAttr*, Av**, void* context);
  int (*cq_open)(Domain*, CqAttr*, Cq**, void* context);
  int (*endpoint)(Domain*, Info*, Ep**, void* context);
};
struct MrOps {
  std::size_t size;
  int (*reg)(Fid*, const void* address, std::size_t bytes, uint64_t access, uint64_t offset,
             uint64_t requested_key, uint64_t flags, Mr**, void* context);
};
struct Domain {
  Fid fid;
  DomainOps* ops;
  MrOps* mr;
};

struct Mr {
  Fid fid;
  void* descriptor;
  uint64_t key;
};

struct AvOps {
  std::size_t size;
  int (*insert)(Av*, const void* addresses, std::size_t count, Address*, uint64_t flags,
                void* context);
  int (*insert_service)(Av*, const char*, const char*, Address*, uint64_t, void*);
  int (*insert_symmetric)(Av*, const char*, std::size_t, const char*, std::size_t, Address*,
                          uint64_t, void*);
  int (*remove)(Av*, Address*, std::size_t count, uint64_t flags);
};
struct Av {
  Fid fid;
  AvOps* ops;
};

struct CqTaggedEntry {
  void* op_context;
  uint64_t flags;
  std::size_t len;
  void* buf;
  uint64_t data;
  uint64_t tag;
};
struct CqErrorEntry {
  void* op_context;
  uint64_t flags;
  std::size_t len;
  void* buf;
  uint64_t data;
  uint64_t tag;
  std::size_t olen;
  int err;
  int prov_errno;
  void* err_data;
  std::size_t err_data_size;
  uint64_t later[8];  // room for what later interfaces append
};
struct CqOps {
  std::size_t size;
  ssize_t (*read)(Cq*, void* entries, std::size_t count);
  ssize_t (*readfrom)(Cq*, void* entries, std::size_t count, Address* sources);
  ssize_t (*readerr)(Cq*, CqErrorEntry*, uint64_t flags);
};
struct Cq {
  Fid fid;
  CqOps* ops;
};

struct RmaIov {
  uint64_t addr;
  std::size_t len;
  uint64_t key;
};
struct RmaMessage {
  const iovec* msg_iov;
  void** desc;
  std::size_t iov_count;
  Address addr;
  const RmaIov* rma_iov;
  std::size_t rma_iov_count;
  void* context;
  uint64_t data;
};
struct TaggedMessage {
  const iovec* msg_iov;
  void** desc;
  std::size_t iov_count;
  Address addr;
  uint64_t tag;
  uint64_t ignore;
  void* context;
  uint64_t data;
};

struct EpOps {
  std::size_t size;
  ssize_t (*cancel)(Fid*, void* context);
};
struct CmOps {
  std::size_t size;
  int (*setname)(Fid*, void* address, std::size_t bytes);
  int (*getname)(Fid*, void* address, std::size_t* bytes);
};
struct RmaOps {
  std::size_t size;
  ssize_t (*read)(Ep*, void*, std::size_t, void*, Address, uint64_t, uint64_t, void*);
  ssize_t (*readv)(Ep*, const iovec*, void**, std::size_t, Address, uint64_t, uint64_t, void*);
  ssize_t (*readmsg)(Ep*, const RmaMessage*, uint64_t flags);
  ssize_t (*write)(Ep*, const void*, std::size_t, void*, Address, uint64_t, uint64_t, void*);
  ssize_t (*writev)(Ep*, const iovec*, void**, std::size_t, Address, uint64_t, uint64_t, void*);
  ssize_t (*writemsg)(Ep*, const RmaMessage*, uint64_t flags);
};
struct TaggedOps {
  std::size_t size;
  ssize_t (*recv)(Ep*, void*, std::size_t, void*, Address, uint64_t, uint64_t, void*);
  ssize_t (*recvv)(Ep*, const iovec*, void**, std::size_t, Address, uint64_t, uint64_t, void*);
  ssize_t (*recvmsg)(Ep*, const TaggedMessage*, uint64_t flags);
  ssize_t (*send)(Ep*, const void*, std::size_t, void*, Address, uint64_t, void*);
  ssize_t (*sendv)(Ep*, const iovec*, void**, std::size_t, Address, uint64_t, void*);
  ssize_t (*sendmsg)(Ep*, const TaggedMessage*, uint64_t flags);
};
struct Ep {
  Fid fid;
  EpOps* ops;
  CmOps* cm;
  void* msg;
  RmaOps* rma;
  TaggedOps* tagged;
};

}  // namespace railshmem::nic::libfabric::abi
