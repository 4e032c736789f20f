// The queue formats of ConnectX NICs: work-queue entries, completion-queue entries, doorbells, and
// functions that write and read them. Whatever drives such a queue uses these: the emulated NIC's
// endpoints today, kernels that ring a NIC themselves tomorrow. Numbers are big-endian.
//
// Every entry made here fills exactly one basic block of 64 bytes, so that the index of an entry is
// its place in the queue and nothing ever wraps in the middle of an entry.
#pragma once

#include <stddef.h>

#include "kernels/arch/arch.hpp"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the byte swaps below are for little-endian machines"
#endif

namespace railshmem::mlx5 {

enum class Opcode : uint8_t {
  nop = 0x00,
  write = 0x08,
  write_imm = 0x09,
  send_imm = 0x0b,
  read = 0x10,
  compare_swap = 0x11,
  fetch_add = 0x12,
};

enum class CqeOpcode : uint8_t {
  request = 0,
  received_write_imm = 1,
  received_send_imm = 3,
  request_error = 13,
  receive_error = 14,
  invalid = 15,
};

enum class Syndrome : uint8_t {
  ok = 0x00,
  local_length = 0x01,
  local_operation = 0x02,
  local_protection = 0x04,
  flushed = 0x05,
  remote_invalid_request = 0x12,
  remote_access = 0x13,
  remote_operation = 0x14,
  transport_retry = 0x15,
  receiver_not_ready = 0x16,
};

// Flags of the control segment. Hardware keeps WRITEs in order anyway; the fences make it wait for
// earlier READs and atomics, too.
constexpr uint8_t kAskCompletion = 0x08;
constexpr uint8_t kSmallFence = 0x20;
constexpr uint8_t kFence = 0x80;
constexpr uint32_t kInlineFlag = 0x80000000u;
constexpr uint32_t kMaxDepth = 16384;  // indices have 16 bits; distances must stay unambiguous

// ---- big-endian; the same swap goes both ways --------------------------------------------------

RSH_DEVICE uint16_t be16(uint16_t v) {
  return static_cast<uint16_t>(v << 8 | v >> 8);
}
RSH_DEVICE uint32_t be32(uint32_t v) {
  return v << 24 | (v & 0xff00u) << 8 | (v >> 8 & 0xff00u) | v >> 24;
}
RSH_DEVICE uint64_t be64(uint64_t v) {
  return static_cast<uint64_t>(be32(static_cast<uint32_t>(v))) << 32 |
         be32(static_cast<uint32_t>(v >> 32));
}

// ---- layouts -----------------------------------------------------------------------------------

struct ControlSegment {
  uint32_t index_opcode;  // index << 8 | opcode
  uint32_t qpn_ds;        // queue pair << 8 | 16-byte units in the entry
  uint8_t signature;
  uint8_t reserved[2];
  uint8_t flags;
  uint32_t imm;
};
struct RemoteSegment {
  uint64_t address;
  uint32_t rkey;
  uint32_t reserved;
};
struct DataSegment {
  uint32_t bytes;  // 0 would mean 2 GiB: an entry without payload has no data segment
  uint32_t lkey;
  uint64_t address;
};
struct AtomicSegment {
  uint64_t swap_add;
  uint64_t compare;
};
struct InlineHeader {
  uint32_t bytes;  // kInlineFlag | count; the payload follows
};
struct alignas(64) Entry {
  uint8_t bytes[64];
};
static_assert(sizeof(ControlSegment) == 16 && offsetof(ControlSegment, flags) == 11);
static_assert(sizeof(RemoteSegment) == 16 && offsetof(RemoteSegment, rkey) == 8);
static_assert(sizeof(DataSegment) == 16 && offsetof(DataSegment, address) == 8);
static_assert(sizeof(AtomicSegment) == 16 && sizeof(InlineHeader) == 4 && sizeof(Entry) == 64);

constexpr uint32_t kMaxInlineWrite = 64 - 16 - 16 - 4;
constexpr uint32_t kMaxInlineSend = 64 - 16 - 4;

// Successful and failed completions share it; where a request succeeded, hardware keeps a timestamp
// in the eight bytes that end with the syndrome.
struct alignas(64) Cqe {
  uint8_t reserved0[36];
  uint32_t imm;
  uint8_t reserved1[4];
  uint32_t byte_count;
  uint8_t reserved2[6];
  uint8_t vendor_syndrome;
  uint8_t syndrome;
  uint32_t qpn;  // the high byte of a failed request: its opcode
  uint16_t wqe_counter;
  uint8_t signature;
  uint8_t op_own;  // CqeOpcode << 4 | owner bit
};
static_assert(sizeof(Cqe) == 64 && offsetof(Cqe, imm) == 36 && offsetof(Cqe, byte_count) == 44);
static_assert(offsetof(Cqe, vendor_syndrome) == 54 && offsetof(Cqe, syndrome) == 55);
static_assert(offsetof(Cqe, qpn) == 56 && offsetof(Cqe, wqe_counter) == 60);
static_assert(offsetof(Cqe, op_own) == 63);

// How many entries of each queue were ever posted, modulo 2^16.
struct DoorbellRecord {
  uint32_t receive;
  uint32_t send;
};
static_assert(sizeof(DoorbellRecord) == 8 && offsetof(DoorbellRecord, send) == 4);

// ---- writing entries ---------------------------------------------------------------------------

// Which entry is written, and whether its end is reported.
struct Place {
  Entry* entry;
  uint32_t qpn;
  uint16_t index;
  uint8_t flags;
};
struct Local {
  uint64_t address;
  uint32_t lkey;
  uint32_t bytes;
};
struct Remote {
  uint64_t address;
  uint32_t rkey;
};

RSH_DEVICE void write_control(const Place& p, Opcode op, uint32_t units, uint32_t imm) {
  const ControlSegment segment{be32(static_cast<uint32_t>(p.index) << 8 | static_cast<uint8_t>(op)),
                               be32(p.qpn << 8 | units),
                               0,
                               {0, 0},
                               p.flags,
                               be32(imm)};
  memcpy(p.entry->bytes, &segment, sizeof segment);
}

RSH_DEVICE void write_remote(const Place& p, const Remote& remote) {
  const RemoteSegment segment{be64(remote.address), be32(remote.rkey), 0};
  memcpy(p.entry->bytes + 16, &segment, sizeof segment);
}

// Both return the 16-byte units that they filled from `offset` on.
RSH_DEVICE uint32_t write_data(const Place& p, uint32_t offset, const Local& local) {
  if (local.bytes == 0) return 0;
  const DataSegment segment{be32(local.bytes), be32(local.lkey), be64(local.address)};
  memcpy(p.entry->bytes + offset, &segment, sizeof segment);
  return 1;
}
RSH_DEVICE uint32_t write_inline(const Place& p, uint32_t offset, const void* from,
                                 uint32_t bytes) {
  if (bytes == 0) return 0;
  const InlineHeader header{be32(kInlineFlag | bytes)};
  memcpy(p.entry->bytes + offset, &header, sizeof header);
  memcpy(p.entry->bytes + offset + sizeof header, from, bytes);
  return (static_cast<uint32_t>(sizeof header) + bytes + 15) / 16;
}

// `op`: write or read, or write_imm with its immediate.
RSH_DEVICE void encode_transfer(const Place& p, Opcode op, const Remote& remote, const Local& local,
                                uint32_t imm = 0) {
  write_remote(p, remote);
  write_control(p, op, 2 + write_data(p, 32, local), imm);
}

// `op`: write or write_imm, of up to kMaxInlineWrite bytes.
RSH_DEVICE void encode_inline_write(const Place& p, Opcode op, const Remote& remote,
                                    const void* from, uint32_t bytes, uint32_t imm = 0) {
  write_remote(p, remote);
  write_control(p, op, 2 + write_inline(p, 32, from, bytes), imm);
}

RSH_DEVICE void encode_send(const Place& p, const Local& local, uint32_t imm) {
  write_control(p, Opcode::send_imm, 1 + write_data(p, 16, local), imm);
}

// Up to kMaxInlineSend bytes.
RSH_DEVICE void encode_inline_send(const Place& p, const void* from, uint32_t bytes, uint32_t imm) {
  write_control(p, Opcode::send_imm, 1 + write_inline(p, 16, from, bytes), imm);
}

// `op`: fetch_add (compare is 0) or compare_swap. What was there comes to `local`, 8 bytes.
RSH_DEVICE void encode_atomic(const Place& p, Opcode op, const Remote& remote, const Local& local,
                              uint64_t swap_add, uint64_t compare) {
  write_remote(p, remote);
  const AtomicSegment segment{be64(swap_add), be64(compare)};
  memcpy(p.entry->bytes + 32, &segment, sizeof segment);
  write_control(p, op, 3 + write_data(p, 48, local), 0);
}

RSH_DEVICE void encode_nop(const Place& p) {
  write_control(p, Opcode::nop, 1, 0);
}

// Hands everything before `next`, whose last entry is `last`, to the NIC.
RSH_DEVICE void ring(DoorbellRecord* record, uint64_t* doorbell, const Entry* last, uint64_t next) {
  uint64_t word;
  memcpy(&word, last->bytes, sizeof word);
  // The NIC reads the doorbell, then the record, then the entries; each store releases the next.
  arch::store_release(&record->send, be32(static_cast<uint16_t>(next)));
  arch::store_release(doorbell, word);
}

// ---- reading completions -----------------------------------------------------------------------

RSH_DEVICE uint8_t owner_bit(uint64_t index, uint32_t log_entries) {
  return static_cast<uint8_t>(index >> log_entries & 1);
}

// True when completion `index` is in its place in a ring of 2^log_entries; then all of it is.
RSH_DEVICE bool is_ready(const Cqe* cqe, uint64_t index, uint32_t log_entries) {
  // Pairs with the NIC's last store of the entry; ordered, because a thread that is about to sleep
  // looks here after it announced that (see arch::wake).
  const uint8_t seen = arch::load_ordered(&cqe->op_own);
  return (seen & 1) == owner_bit(index, log_entries) &&
         seen >> 4 != static_cast<uint8_t>(CqeOpcode::invalid);
}

RSH_DEVICE CqeOpcode opcode_of(const Cqe& cqe) {
  return static_cast<CqeOpcode>(cqe.op_own >> 4);
}

}  // namespace railshmem::mlx5
