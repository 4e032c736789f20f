// What a kernel receives: plain data that describes this PE, its peers and how to reach them.
#pragma once

#include "kernels/shmem/command.hpp"
#include "kernels/shmem/trace.hpp"

namespace railshmem::device {

enum class Transport : uint8_t {
  p2p,    // load and store into the peer's mapped heap
  ibgda,  // the kernel drives the NIC's queues; reserved
  proxy,  // the kernel hands commands to a CPU thread that drives the NIC
};

// Why waits end before their condition holds. Sticky reasons stay until the job is restarted.
enum class Stop : uint32_t {
  none,
  writing,  // somebody is filling the report
  timeout,
  interrupted,
  bad_expert,  // a kernel found an expert id that does not exist
  no_room,     // a kernel found that a PE would receive more rows than it declared
  ring_dead,   // sticky: a command ring lost a claimed slot
  // Sticky: the network failed. See network_failed in wait.hpp.
  network,       // a NIC answered with an error completion
  no_rail,       // a rail is down, and no other joins the two PEs
  rail_lost,     // a rail is down, and its NICs do not know what they executed
  atomic_lost,   // an atomic was in flight on a rail that went down: executed or not, who knows
  atomics_down,  // the target's home rail is down: atomics do not reach its heap
  peer_lost,     // sticky: a process of the job is gone
  aborted,       // sticky: the job is being ended
};

// What a wait waited for. Names are in shmem/api/report.cpp.
enum class Waiting : uint32_t {
  nothing,
  quiet,
  ring_room,
  completion,
  result_slot,
  word,
  signal,
  barrier,
  collective,
  lock,
  ep_header,
  ep_counts,
  ep_base,
  ep_staging,
  ep_rows,
  ep_results,
  ep_partials,
};

constexpr uint64_t kNoWord = ~0ull;

struct Report {
  Waiting waiting;
  int32_t peer;        // -1: none in particular
  int32_t rail;        // -1: no NIC involved
  uint32_t status;     // nic::Status of an error completion
  uint32_t operation;  // nic::Opcode of an error completion
  uint64_t word;       // offset in the heap, or kNoWord
  uint64_t expected;
  uint64_t seen;
  uint64_t waited_ns;
  uint64_t bytes;  // of the operation that failed
};

// Why waits ended, in host memory: `stop` is read by the host.
struct StopRecord {
  uint32_t stop;
  Report report;
};

// Kernels hand commands to a progress thread of the host: the producers and the consumer. No word
// is changed by read-modify-write from one side and written from the other, because a GPU's atomics
// on host memory are not atomic towards the CPU. Where the producers run on a GPU, what they write
// lies in its memory and what the consumer reads or writes in pinned host memory.

// A ring of commands with many producers and one consumer.
struct Ring {
  CommandSlot* slots;    // host memory
  uint32_t shift;        // log2 of the number of slots
  uint64_t* tail;        // claimed by producers
  uint64_t* head_seen;   // the producers' last look at head
  const uint64_t* head;  // consumed, written by the consumer; host memory
  uint32_t* dead;        // a claimed slot will never be filled; host memory
  uint64_t* full_waits;  // posts that found the ring full; counted by producers in host memory
  uint32_t* sleep_word;  // the consumer sleeps on it, where its producers can wake it
};

// One ordered channel to a peer, the producers' side.
struct Lane {
  alignas(64) uint64_t posted;  // commands
  uint64_t completed_seen;      // the producers' last look at LaneProgress::completed
  uint32_t ring;
  uint32_t connected;  // 0: an empty slot; the peer needs no lane
};

// The consumer's side; host memory.
struct LaneProgress {
  alignas(64) uint64_t completed;  // commands finished without a gap
  int32_t rail;                    // that carries the lane now
};

// Where one get or fetching atomic reports back to the thread that waits for it: the slot is
// claimed by one word of the producers, its result is two words of the consumer, in host memory.
//
// A claim is (uses << 2 | state), where `uses` operations were begun and are over for the
// producers. `abandoned`: the waiter of the last of them gave up before its result came, and it may
// still come: until then nobody gets the slot.
enum class SlotState : uint64_t { free, taken, abandoned };
struct alignas(16) ResultSlot {
  uint64_t value;
  uint64_t ended;  // operations that ended << 1 | the last one failed: the stop word says why
};

// What one PE tells another when a team meets: written by one peer only, with growing sequence
// numbers. There are two words because a peer may be one meeting ahead.
constexpr uint32_t kSyncRounds = 32;
struct alignas(16) SyncWord {
  uint64_t sequence;
  uint64_t agreed;
};
struct SyncRound {
  SyncWord told[2];  // by sequence & 1
};

// The words of one team in every member's heap.
struct SyncArea {
  SyncRound rounds[kSyncRounds];  // dissemination: of all members, or of one per node
  SyncRound release;              // from the leader of my node
  SyncRound gather[1];            // [members of my node], at their leader: that they have come
};
RSH_DEVICE constexpr uint64_t sync_area_bytes(uint64_t members) {
  return sizeof(SyncArea) + (members - 1) * sizeof(SyncRound);
}

// A set of PEs that meet. A leader is the first member of a node.
struct Team {
  int32_t me;  // my number in the team
  int32_t n_pes;
  const int32_t* pes;      // [n_pes] their numbers in the job
  int32_t n_nodes;         // that members are on
  int32_t node;            // mine among them
  const int32_t* leaders;  // [n_nodes]
  int32_t n_local;
  int32_t local;          // my place among the members of my node
  const int32_t* locals;  // [n_local]
  uint64_t area;          // offset of its SyncArea in the heap
  uint64_t* sequence;     // meetings completed by this PE
};

// What a thread of the host that waits can do meanwhile: a round of the progress thread's work.
struct Driver {
  bool (*help)(void* proxy);  // true: something moved
  void* proxy;
};

struct DeviceContext {
  uint64_t abi;  // kAbi of the code that filled it
  int32_t pe;
  int32_t n_pes;
  char* heap;
  uint64_t heap_bytes;
  char* const* peer_base;      // [n_pes], null where the peer's memory is not mapped
  const Transport* transport;  // [n_pes]
  bool atomics_posted;   // some peer needs a NIC, so every atomic goes through the target's one
  uint32_t n_lanes;      // lanes per peer of the default context: the first ones
  uint32_t lane_stride;  // all lanes per peer: further contexts have one each
  Lane* lanes;           // [n_pes * lane_stride]; null when every peer is P2P
  const LaneProgress* progress;  // beside it
  Ring* rings;
  uint64_t* result_claims;         // [n_result_slots]
  const ResultSlot* result_slots;  // beside it
  uint32_t n_result_slots;
  uint64_t* result_hint;  // where to look for a free slot first
  const Team* world;      // all PEs
  // The host has one word for all three. A GPU has its own claim and its own report, and hears from
  // the CPU by the PE's stop word.
  uint32_t* stop_claim;      // not 0: stopped; the first to change it writes the report
  StopRecord* stop;          // the report of that one
  const uint32_t* job_stop;  // the PE's stop word
  uint64_t timeout_ns;
  uint32_t spins;        // before a wait yields its core
  const Trace* trace;    // null: no timeline is written
  const Driver* driver;  // null: the progress thread needs no help
};

// Changes with the layout of everything above: a kernel compiled against another layout is refused.
constexpr uint64_t kAbi = 0x5253484d00040000ull + sizeof(DeviceContext) + sizeof(Lane) * 4096 +
                          sizeof(Team) * (uint64_t{1} << 24);
#if defined(RAILSHMEM_ABI)
// Given by whoever launches kernels compiled now: one that would read another layout does not come
// to exist.
static_assert(kAbi == RAILSHMEM_ABI, "kernels and library are not of one release");
#endif

RSH_DEVICE uint64_t offset_of(const DeviceContext* ctx, const void* symmetric) {
  return static_cast<uint64_t>(static_cast<const char*>(symmetric) - arch::fixed(ctx->heap));
}
RSH_DEVICE Lane& lane_of(const DeviceContext* ctx, int pe, uint32_t lane) {
  return arch::fixed(ctx->lanes)[static_cast<uint64_t>(pe) * arch::fixed(ctx->lane_stride) + lane];
}
RSH_DEVICE const LaneProgress& progress_of(const DeviceContext* ctx, int pe, uint32_t lane) {
  return arch::fixed(
      ctx->progress)[static_cast<uint64_t>(pe) * arch::fixed(ctx->lane_stride) + lane];
}
template <class T>
RSH_DEVICE T* at_offset(const DeviceContext* ctx, uint64_t offset) {
  return reinterpret_cast<T*>(arch::fixed(ctx->heap) + offset);
}
RSH_DEVICE Transport transport_of(const DeviceContext* ctx, int pe) {
  return arch::fixed(arch::fixed(ctx->transport)[pe]);
}
// The same symmetric object in a mapped peer.
template <class T>
RSH_DEVICE T* in_peer(const DeviceContext* ctx, T* symmetric, int pe) {
  return reinterpret_cast<T*>(arch::fixed(arch::fixed(ctx->peer_base)[pe]) +
                              offset_of(ctx, symmetric));
}

}  // namespace railshmem::device
