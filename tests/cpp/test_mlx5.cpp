// Work-queue entries, byte for byte as the vendor's own builders write them, and the decoder of the
// emulated NIC, which must read the same bytes and refuse all others.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/nic/mlx5.hpp"
#include "shmem/nic/emulated/completions.hpp"
#include "shmem/nic/emulated/decoder.hpp"

namespace mlx5 = railshmem::mlx5;
namespace emulated = railshmem::nic::emulated;
using mlx5::Opcode;
using mlx5::Syndrome;

namespace {

constexpr uint32_t kQpn = 0x0123ab;
constexpr uint16_t kIndex = 0x1234;
constexpr mlx5::Remote kRemote{0x00007fffdeadbee0, 0x55667788};
constexpr uint64_t kLocalAddress = 0x0000700012345678;
constexpr uint32_t kLkey = 0x11223344;

struct Made {
  mlx5::Entry entry{};
  mlx5::Place place(uint8_t flags = mlx5::kAskCompletion) { return {&entry, kQpn, kIndex, flags}; }
  mlx5::Local local(uint32_t bytes) const { return {kLocalAddress, kLkey, bytes}; }
};

std::vector<uint8_t> hex(const std::string& digits) {
  std::istringstream in(digits);
  std::vector<uint8_t> out;
  for (unsigned byte; in >> std::hex >> byte;) out.push_back(static_cast<uint8_t>(byte));
  return out;
}

// What the entry says, as far as its own size field reaches.
std::vector<uint8_t> bytes_of(const mlx5::Entry& entry) {
  return {entry.bytes, entry.bytes + 16 * entry.bytes[7]};
}

Syndrome decode(const Made& made, emulated::Request* out) {
  return emulated::decode(made.entry, kQpn, kIndex, out);
}

Syndrome decode(const Made& made) {
  emulated::Request unused;
  return decode(made, &unused);
}

Made inline_write(uint32_t bytes) {
  static const char payload[64] = "hello, wqe!";
  Made made;
  mlx5::encode_inline_write(made.place(), Opcode::write, kRemote, payload, bytes);
  return made;
}

Made fetch_add() {
  Made made;
  mlx5::encode_atomic(made.place(), Opcode::fetch_add, kRemote, made.local(8), 1, 0);
  return made;
}

}  // namespace

TEST_CASE("mlx5: entries equal the golden bytes") {
  Made write;
  mlx5::encode_transfer(write.place(), Opcode::write, kRemote, write.local(4096));
  CHECK(bytes_of(write.entry) == hex("00 12 34 08 01 23 ab 03 00 00 00 08 00 00 00 00 "
                                     "00 00 7f ff de ad be e0 55 66 77 88 00 00 00 00 "
                                     "00 00 10 00 11 22 33 44 00 00 70 00 12 34 56 78"));
  Made write_imm;
  mlx5::encode_transfer(write_imm.place(0), Opcode::write_imm, kRemote, write_imm.local(64),
                        0xcafef00d);
  CHECK(bytes_of(write_imm.entry) == hex("00 12 34 09 01 23 ab 03 00 00 00 00 ca fe f0 0d "
                                         "00 00 7f ff de ad be e0 55 66 77 88 00 00 00 00 "
                                         "00 00 00 40 11 22 33 44 00 00 70 00 12 34 56 78"));
  CHECK(bytes_of(inline_write(12).entry) == hex("00 12 34 08 01 23 ab 03 00 00 00 08 00 00 00 00 "
                                                "00 00 7f ff de ad be e0 55 66 77 88 00 00 00 00 "
                                                "80 00 00 0c 68 65 6c 6c 6f 2c 20 77 71 65 21 00"));
  CHECK(bytes_of(fetch_add().entry) == hex("00 12 34 12 01 23 ab 04 00 00 00 08 00 00 00 00 "
                                           "00 00 7f ff de ad be e0 55 66 77 88 00 00 00 00 "
                                           "00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 "
                                           "00 00 00 08 11 22 33 44 00 00 70 00 12 34 56 78"));
  Made send;
  mlx5::encode_send(send.place(), {}, 7);
  CHECK(bytes_of(send.entry) == hex("00 12 34 0b 01 23 ab 01 00 00 00 08 00 00 00 07"));
  Made nop;
  mlx5::encode_nop(nop.place(0));
  CHECK(bytes_of(nop.entry) == hex("00 12 34 00 01 23 ab 01 00 00 00 00 00 00 00 00"));
}

TEST_CASE("mlx5: the doorbell is the last entry's head, the record the 16-bit count") {
  const Made write = inline_write(12);
  mlx5::DoorbellRecord record{};
  uint64_t doorbell = 0;
  mlx5::ring(&record, &doorbell, &write.entry, 0x71235);
  const auto* raw = reinterpret_cast<const uint8_t*>(&record);
  CHECK(std::vector<uint8_t>(raw, raw + 8) == hex("00 00 00 00 00 00 12 35"));
  CHECK(std::memcmp(&doorbell, write.entry.bytes, 8) == 0);
}

TEST_CASE("decoder: reads back what was encoded") {
  emulated::Request got;
  SUBCASE("transfers") {
    for (const Opcode op : {Opcode::write, Opcode::write_imm, Opcode::read}) {
      Made made;
      mlx5::encode_transfer(made.place(), op, kRemote, made.local(1 << 30), 9);
      REQUIRE(decode(made, &got) == Syndrome::ok);
      CHECK(got.op == op);
      CHECK(got.length == 1u << 30);
      CHECK(got.local == kLocalAddress);
      CHECK(got.lkey == kLkey);
      CHECK(got.remote == kRemote.address);
      CHECK(got.rkey == kRemote.rkey);
      CHECK(got.imm == 9);
      CHECK(got.payload == nullptr);
      CHECK(got.signalled);
    }
  }
  SUBCASE("inline writes of every length") {
    for (uint32_t bytes = 0; bytes <= mlx5::kMaxInlineWrite; ++bytes) {
      const Made made = inline_write(bytes);
      REQUIRE(decode(made, &got) == Syndrome::ok);
      CHECK(got.length == bytes);
      if (bytes != 0) CHECK(std::memcmp(got.payload, "hello, wqe!", std::min(bytes, 12u)) == 0);
    }
  }
  SUBCASE("inline sends of every length") {
    const char payload[mlx5::kMaxInlineSend] = "a message";
    for (uint32_t bytes = 0; bytes <= mlx5::kMaxInlineSend; ++bytes) {
      Made made;
      mlx5::encode_inline_send(made.place(0), payload, bytes, 0xcafe);
      REQUIRE(decode(made, &got) == Syndrome::ok);
      CHECK(got.op == Opcode::send_imm);
      CHECK(got.length == bytes);
      CHECK(got.imm == 0xcafe);
      CHECK_FALSE(got.signalled);
      if (bytes != 0) CHECK(std::memcmp(got.payload, payload, bytes) == 0);
    }
  }
  SUBCASE("gathered send") {
    Made made;
    mlx5::encode_send(made.place(), made.local(100), 3);
    REQUIRE(decode(made, &got) == Syndrome::ok);
    CHECK(got.length == 100);
    CHECK(got.local == kLocalAddress);
  }
  SUBCASE("atomics") {
    Made made;
    mlx5::encode_atomic(made.place(), Opcode::compare_swap, kRemote, made.local(8), ~0ull, 77);
    REQUIRE(decode(made, &got) == Syndrome::ok);
    CHECK(got.op == Opcode::compare_swap);
    CHECK(got.swap_add == ~0ull);
    CHECK(got.compare == 77);
    REQUIRE(decode(fetch_add(), &got) == Syndrome::ok);
    CHECK(got.op == Opcode::fetch_add);
    CHECK(got.swap_add == 1);
  }
  SUBCASE("no-operation") {
    Made made;
    mlx5::encode_nop(made.place());
    CHECK(decode(made) == Syndrome::ok);
  }
}

TEST_CASE("decoder: refuses malformed entries") {
  Made good = inline_write(8);
  REQUIRE(decode(good) == Syndrome::ok);
  struct Fault {
    const char* what;
    int at;
    uint8_t value;
    Syndrome expected;
  };
  const Fault faults[] = {
      {"an opcode modifier", 0, 1, Syndrome::local_operation},
      {"another index", 2, 0x35, Syndrome::local_operation},
      {"an unknown opcode", 3, 0x0a, Syndrome::local_operation},
      {"another queue pair", 6, 0xac, Syndrome::local_operation},
      {"no size", 7, 0, Syndrome::local_operation},
      {"a size without the payload", 7, 1, Syndrome::local_operation},
      {"a size beyond the payload", 7, 4, Syndrome::local_operation},
      {"more than one block", 7, 5, Syndrome::local_operation},
      {"inline data longer than its size", 35, 13, Syndrome::local_operation},
      {"inline data of 2 GiB less one", 32, 0xff, Syndrome::local_operation},
  };
  for (const Fault& fault : faults) {
    Made bad = good;
    bad.entry.bytes[fault.at] = fault.value;
    CHECK_MESSAGE(decode(bad) == fault.expected, "entry with ", fault.what);
  }

  // 29 bytes need a fifth unit, which is in the next block.
  Made too_long = inline_write(28);
  too_long.entry.bytes[35] = 29;
  CHECK(decode(too_long) == Syndrome::local_operation);

  Made inlined_read = good;
  inlined_read.entry.bytes[3] = static_cast<uint8_t>(Opcode::read);
  CHECK(decode(inlined_read) == Syndrome::local_operation);

  Made too_big;
  mlx5::encode_transfer(too_big.place(), Opcode::write, kRemote, too_big.local((1u << 30) + 1));
  CHECK(decode(too_big) == Syndrome::local_length);

  Made two_gib;  // a data segment whose length field is 0
  mlx5::encode_transfer(two_gib.place(), Opcode::write, kRemote, two_gib.local(1));
  two_gib.entry.bytes[35] = 0;
  CHECK(decode(two_gib) == Syndrome::local_length);

  Made narrow = fetch_add();
  narrow.entry.bytes[51] = 4;
  CHECK(decode(narrow) == Syndrome::local_length);
  Made short_atomic = fetch_add();
  short_atomic.entry.bytes[7] = 3;
  CHECK(decode(short_atomic) == Syndrome::local_operation);
}

TEST_CASE("completion ring: the owner bit tells laps apart") {
  emulated::CompletionRing ring(4);
  for (uint16_t i = 0; i < 23; ++i) {
    CHECK(ring.take() == nullptr);
    emulated::Answer answer;
    answer.counter = i;
    answer.qpn = kQpn;
    ring.write(answer);
    const mlx5::Cqe* cqe = ring.take();
    REQUIRE(cqe != nullptr);
    CHECK((cqe->op_own & 1) == (i / 4) % 2);
    CHECK(mlx5::be16(cqe->wqe_counter) == i);
    CHECK(mlx5::be32(cqe->qpn) == kQpn);
  }
}
