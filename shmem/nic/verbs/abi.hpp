// What this provider uses of libibverbs, as that library lays it out in memory: the project is
// built without its headers and opens it at run time. Fields and constants that nobody here needs
// are left out where nothing depends on them. tests/cpp/test_verbs_abi.cpp compares this file with
// the library's own header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railshmem::nic::verbs {

struct Context;
struct ProtectionDomain;
struct CompletionQueue;
struct QueuePair;

struct Gid {
  alignas(8) unsigned char raw[16];
};

// ---- work ----

struct ScatterGather {
  uint64_t address;
  uint32_t length;
  uint32_t lkey;
};

enum class WireOpcode : uint32_t {
  write = 0,
  write_imm = 1,
  send_imm = 3,
  read = 4,
  compare_swap = 5,
  fetch_add = 6,
};
constexpr uint32_t kSendFence = 1;
constexpr uint32_t kSendSignaled = 2;
constexpr uint32_t kSendInline = 8;

struct SendRequest {
  uint64_t id;
  SendRequest* next;
  ScatterGather* pieces;
  int n_pieces;
  WireOpcode opcode;
  uint32_t flags;
  uint32_t imm;  // big-endian
  union {
    struct {
      uint64_t address;
      uint32_t rkey;
    } rdma;
    struct {
      uint64_t address;
      uint64_t compare_add;
      uint64_t swap;
      uint32_t rkey;
    } atomic;
  };
  uint64_t unused[7];  // of other kinds of queue pairs
};

struct ReceiveRequest {
  uint64_t id;
  ReceiveRequest* next;
  ScatterGather* pieces;
  int n_pieces;
};

enum class WorkStatus : uint32_t {
  success = 0,
  local_length = 1,
  local_queue_pair = 2,
  local_protection = 4,
  flushed = 5,
  bad_response = 7,
  local_access = 8,
  remote_invalid_request = 9,
  remote_access = 10,
  remote_operation = 11,
  retries_exceeded = 12,
  receiver_not_ready = 13,
  remote_abort = 16,
  fatal = 19,
  response_timeout = 20,
  general = 21,
};

// Of one with an error only `id` and `status` mean something.
struct WorkCompletion {
  uint64_t id;
  WorkStatus status;
  uint32_t opcode;
  uint32_t vendor_error;
  uint32_t bytes;
  uint32_t imm;  // big-endian
  uint32_t queue_pair;
  uint32_t peer_queue_pair;
  uint32_t flags;
  uint16_t pkey_index;
  uint16_t peer_lid;
  uint8_t service_level;
  uint8_t path_bits;
};

// ---- objects; the library makes them, and they have more fields than these ----

struct ContextOps {
  void* before_poll[11];
  int (*poll_cq)(CompletionQueue* queue, int room, WorkCompletion* out);
  void* before_post[13];
  int (*post_send)(QueuePair* pair, SendRequest* first, SendRequest** bad);
  int (*post_recv)(QueuePair* pair, ReceiveRequest* first, ReceiveRequest** bad);
  void* after_post[5];
};

constexpr int kTransportInfiniband = 0;  // InfiniBand and RoCE

struct Device {
  void* ops[2];
  int node_type;
  int transport;
};

struct Context {
  Device* device;
  ContextOps ops;
  int command_fd;
  int async_fd;
};

struct CompletionQueue {
  Context* context;
};

struct QueuePair {
  Context* context;
  void* own[5];
  uint32_t handle;
  uint32_t number;
};

struct MemoryRegion {
  Context* context;
  ProtectionDomain* domain;
  void* address;
  std::size_t bytes;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};

constexpr int kAccessLocalWrite = 1;
constexpr int kAccessRemoteWriteFlag = 2;
constexpr int kAccessRemoteReadFlag = 4;
constexpr int kAccessRemoteAtomicFlag = 8;
constexpr int kAccessRelaxedOrdering = 1 << 20;

// ---- what devices and ports say ----

struct DeviceAttributes {
  char firmware[64];
  uint64_t node_guid;
  uint64_t system_guid;
  uint64_t max_region;
  uint64_t page_sizes;
  uint32_t vendor;
  uint32_t vendor_part;
  uint32_t hardware_version;
  int max_queue_pairs;
  int max_requests;  // of a queue pair
  uint32_t capabilities;
  int max_pieces;
  int max_pieces_read;
  int max_completion_queues;
  int max_completions;  // of a completion queue
  int max_regions;
  int max_domains;
  int max_reads_answered;  // READs and atomics at once, per queue pair
  int max_ee_reads;
  int max_reads_all;
  int max_reads_asked;
  int max_ee_reads_asked;
  int atomics;  // 0: none
  int unused[14];
  uint16_t max_pkeys;
  uint8_t ack_delay;
  uint8_t ports;
};

constexpr int kPortActive = 4;
constexpr uint8_t kLinkEthernet = 2;

struct PortAttributes {
  int state;
  int max_mtu;
  int active_mtu;  // 1: 256 bytes, each next one twice as many
  int gids;
  uint32_t capabilities;
  uint32_t max_message;
  uint32_t bad_pkeys;
  uint32_t qkey_violations;
  uint16_t pkeys;
  uint16_t lid;
  uint16_t manager_lid;
  uint8_t lid_mask;
  uint8_t lanes;
  uint8_t manager_level;
  uint8_t subnet_timeout;
  uint8_t init_type;
  uint8_t width;
  uint8_t speed;
  uint8_t physical_state;
  uint8_t link;
  uint8_t flags;
  uint16_t more_capabilities;
};

// ---- queue pairs ----

struct QueueCapacity {
  uint32_t requests;
  uint32_t receives;
  uint32_t request_pieces;
  uint32_t receive_pieces;
  uint32_t inline_bytes;
};

constexpr int kReliableConnection = 2;

struct QueuePairMaking {
  void* own;
  CompletionQueue* send_completions;
  CompletionQueue* receive_completions;
  void* shared_receives;
  QueueCapacity capacity;
  int kind;
  int signal_all;
};

enum class QueueState : uint32_t { reset = 0, init = 1, receive = 2, send = 3, error = 6 };

struct AddressHandle {
  Gid peer;
  uint32_t flow_label;
  uint8_t gid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint16_t lid;
  uint8_t service_level;
  uint8_t path_bits;
  uint8_t static_rate;
  uint8_t has_gid;
  uint8_t port;
};

struct QueuePairAttributes {
  QueueState state;
  QueueState current_state;
  int mtu;
  int migration;
  uint32_t qkey;
  uint32_t receive_psn;
  uint32_t send_psn;
  uint32_t peer;
  uint32_t access;
  QueueCapacity capacity;
  AddressHandle path;
  AddressHandle other_path;
  uint16_t pkey_index;
  uint16_t other_pkey_index;
  uint8_t notify_drained;
  uint8_t draining;
  uint8_t reads_asked;
  uint8_t reads_answered;
  uint8_t min_rnr_timer;
  uint8_t port;
  uint8_t timeout;
  uint8_t retries;
  uint8_t rnr_retries;
  uint8_t other_port;
  uint8_t other_timeout;
  uint32_t rate_limit;
};

// Which attributes a call sets.
constexpr int kSetState = 1 << 0;
constexpr int kSetAccess = 1 << 3;
constexpr int kSetPkey = 1 << 4;
constexpr int kSetPort = 1 << 5;
constexpr int kSetPath = 1 << 7;
constexpr int kSetMtu = 1 << 8;
constexpr int kSetTimeout = 1 << 9;
constexpr int kSetRetries = 1 << 10;
constexpr int kSetRnrRetries = 1 << 11;
constexpr int kSetReceivePsn = 1 << 12;
constexpr int kSetReadsAsked = 1 << 13;
constexpr int kSetMinRnrTimer = 1 << 15;
constexpr int kSetSendPsn = 1 << 16;
constexpr int kSetReadsAnswered = 1 << 17;
constexpr int kSetPeer = 1 << 20;

// ---- events ----

enum class EventKind : uint32_t {
  queue_error = 0,
  pair_fatal = 1,
  pair_request_error = 2,
  pair_access_error = 3,
  device_fatal = 8,
  port_error = 10,
};

struct Event {
  union {
    CompletionQueue* queue;
    QueuePair* pair;
    int port;
  };
  EventKind kind;
};

}  // namespace railshmem::nic::verbs
