// The seam between the library and its networks. A provider offers NICs; a NIC registers memory and
// makes endpoints; an endpoint is one reliable, connected queue pair. The host API, the proxy and
// the IO engine use nothing else of a network. Providers: emulated/, verbs/, libfabric/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "shmem/memory/segment.hpp"

namespace railshmem::nic {

enum class Opcode : uint8_t { write, write_imm, read, send_imm, fetch_add, compare_swap };
const char* name_of(Opcode op);

// What a NIC really does, found at run time.
struct Capabilities {
  bool atomics = false;        // FETCH_AND_ADD and COMPARE_AND_SWAP on 8 aligned bytes
  bool ordered = false;        // what one endpoint writes is placed in order, as Order says
  bool device_queues = false;  // queues and doorbells can be mapped by kernels
  bool reaches_gpu = false;    // registers a GPU's memory, and reads and writes it itself
  bool shuts = false;          // Endpoint::shut() ends what the peer may do to this side's memory
  bool counts = false;         // Endpoint::executed() is known
  uint32_t max_inline = 0;     // bytes a WRITE may carry inside its entry
  uint32_t max_send = 0;       // bytes a SEND may carry inside its entry
  uint64_t max_message = 0;    // bytes of one WRITE or READ
  uint64_t max_region = 0;     // bytes of one registered region
};

// Rights a registered region grants to peers. Local use is always granted.
enum Access : uint32_t {
  kAccessLocal = 0,
  kAccessRemoteWrite = 1,
  kAccessRemoteRead = 2,
  kAccessRemoteAtomic = 4,
  kAccessRemoteAll = 7,
};

struct MemoryKey {
  uint32_t lkey = 0;  // 0: none
  uint64_t rkey = 0;
};

// Where a NIC or an endpoint is found. Opaque plain data: it travels in allgathers and is
// understood by the provider that made it.
struct NicAddress {
  unsigned char bytes[112] = {};
};
struct EndpointAddress {
  unsigned char bytes[16] = {};
};

// What an ordered NIC keeps of the order in which WRITEs and atomics of one endpoint were posted.
// Most keep all of it. Atomics are always placed after what was posted before them.
enum class Order : uint8_t {
  free,   // nobody relies on its place among the others
  after,  // placed after all that was posted before it
  fence,  // as that, and so is all that is posted after it
};

struct WorkRequest {
  Opcode op = Opcode::write;
  Order order = Order::free;  // of a WRITE
  bool inlined = false;  // the bytes at `local` travel inside the entry and may change after post()
  uint64_t local = 0;    // source of WRITE and SEND, destination of READ and of an atomic's result
  uint32_t lkey = 0;     // not needed where inlined
  uint32_t length = 0;   // bytes; 8 for atomics
  uint64_t remote = 0;   // address in the peer
  uint64_t rkey = 0;
  uint32_t imm = 0;      // of write_imm and send_imm
  uint64_t operand = 0;  // what fetch_add adds, what compare_swap stores
  uint64_t compare = 0;  // what compare_swap expects
};

enum class Status : uint8_t {
  ok,
  local_length,        // a receive buffer or an entry was too small; the sender: remote_operation
  local_operation,     // malformed entry
  local_protection,    // lkey or local bounds
  flushed,             // the endpoint was already in error
  remote_access,       // rkey, remote bounds or rights
  remote_operation,    // the peer could not do it (atomics it does not offer, misaligned)
  receiver_not_ready,  // no receive buffer was posted
  peer_unreachable,    // the peer did not answer: its NIC, its queue pair or the rail is down
  peer_ended,          // as before, and the provider knows that the peer's process has ended
};
const char* name_of(Status status);

struct Completion {
  uint32_t endpoint = 0;  // Endpoint::id()
  bool received = false;  // a SEND or an immediate arrived; else a request of ours ended
  Status status = Status::ok;
  uint64_t index = 0;  // the request's (or the receive buffer's) number on its endpoint, from 0
  uint32_t bytes = 0;  // received
  uint32_t imm = 0;    // received
};

// One reliable, connected queue pair. Used by one thread at a time; destroyed before its NIC. Every
// request yields exactly one completion, in the order of posting. The first that is not ok ends the
// queue pair: later requests are flushed, and those of the peer find it unreachable.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual uint32_t id() const = 0;  // unique within its NIC
  virtual EndpointAddress address() const = 0;

  // Both sides call it, with the other's addresses. Throws Error(init) with the reason where the
  // peer cannot be reached, for example on another rail.
  virtual void connect(const NicAddress& peer_nic, const EndpointAddress& peer) = 0;

  // Writes one entry; the NIC sees it at ring_doorbell(). Returns false, and does nothing, when all
  // entries are in use (posted and not yet polled as completed). Throws Error(argument), and does
  // nothing, for what no entry can say: beyond max_message or the inline limits, an atomic that is
  // not of 8 bytes, an endpoint that is not connected.
  virtual bool post(const WorkRequest& request) = 0;
  virtual void ring_doorbell() = 0;

  // Gives the NIC a buffer for one incoming SEND or immediate; false when all are in use. The
  // region of `lkey` must have been registered with `shared` (see register_memory).
  virtual bool post_receive(uint64_t address, uint32_t lkey, uint32_t bytes) = 0;

  // Puts this end in error, if it is not: what is posted and not completed is flushed, and nothing
  // of the peer is let in any more. False while a request of the peer is still being executed here:
  // call again. After true nothing of this connection can touch this side's memory, where the NIC
  // has Capabilities::shuts.
  virtual bool shut() = 0;
  // After that: how many of the peer's requests were executed here, all earlier ones included;
  // where the NIC has Capabilities::counts, else 0.
  virtual uint64_t executed() const = 0;

  virtual uint64_t posted() const = 0;     // requests posted since creation
  virtual uint64_t completed() const = 0;  // of those, polled as completed
};

class Nic {
 public:
  virtual ~Nic() = default;

  virtual const std::string& name() const = 0;
  // NICs of one network can reach each other, as far as their addresses say ("10.1.0.0/16"); those
  // of different ones may not.
  virtual std::string network() const = 0;
  // From this PE's GPU, or from its cores: smaller is nearer. Compared within one PE only.
  virtual uint32_t distance() const { return 0; }
  // The job's number for what joins this NIC to those of other hosts; known once all PEs have told
  // each other their networks.
  uint32_t rail() const { return rail_; }
  void set_rail(uint32_t rail) { rail_ = rail; }

  virtual const Capabilities& capabilities() const = 0;
  virtual NicAddress address() const = 0;

  // Registers [address, address + bytes). Remote access and receive buffers need `shared`, the
  // segment that holds the region (its base included), where the provider's peers reach memory by
  // mapping it. The region must stay alive until deregister_memory, which returns when no peer
  // touches it any more.
  virtual MemoryKey register_memory(void* address, std::size_t bytes, uint32_t access,
                                    const SegmentHandle* shared) = 0;
  virtual void deregister_memory(const MemoryKey& key) = 0;

  // Queues of `depth` requests and `receive_depth` receive buffers, both powers of two.
  virtual std::unique_ptr<Endpoint> create_endpoint(uint32_t depth, uint32_t receive_depth) = 0;

  // Does the part of the work that the provider leaves to the CPU; true when something moved or
  // will move without a doorbell.
  virtual bool progress() = 0;

  // Fills up to `room` completions of all endpoints of this NIC; returns how many.
  virtual std::size_t poll(Completion* out, std::size_t room) = 0;

 private:
  uint32_t rail_ = 0;
};

class Provider {
 public:
  virtual ~Provider() = default;

  virtual const char* name() const = 0;
  virtual const std::vector<std::unique_ptr<Nic>>& nics() const = 0;

  // The word on which the thread that drives these NICs sleeps: it stores 1, looks once more for
  // work and waits (futex, shared between processes) while the word is 1. Whoever brings work
  // exchanges it to 0 and wakes the thread when it was 1.
  virtual uint32_t* sleep_word() = 0;
  // The NICs do so too. Where they do not, the thread must look at them from time to time.
  virtual bool wakes() const = 0;
  // Where they do not: sleeps, not on the word, until a NIC may have news, at most for so long.
  // From any thread. False, at once: that is not possible here.
  virtual bool sleep(uint64_t /*ns*/) { return false; }

  // The first and the last call of the thread that drives the NICs. In between, peers can notice
  // the end of this process (Status::peer_ended).
  virtual void begin_driving() = 0;
  virtual void end_driving() = 0;
};

static_assert(std::is_trivially_copyable_v<NicAddress> &&
              std::is_trivially_copyable_v<SegmentHandle>);

}  // namespace railshmem::nic
