#include "shmem/nic/emulated/decoder.hpp"

namespace railshmem::nic::emulated {
namespace {

using mlx5::Opcode;
using mlx5::Syndrome;

template <int Bytes>
uint64_t number(const uint8_t* at) {
  uint64_t out = 0;
  for (int i = 0; i < Bytes; ++i) out = out << 8 | at[i];
  return out;
}

// The payload's description, in the last `units` 16-byte units of the entry.
Syndrome read_payload(const uint8_t* at, int units, bool may_be_inline, Request* out) {
  if (units == 0) return Syndrome::ok;
  if (units < 0) return Syndrome::local_operation;
  const uint64_t count = number<4>(at);
  const bool is_inline = count >> 31 != 0;
  if (is_inline) {
    const uint64_t bytes = count & 0x7fffffff;
    if (!may_be_inline || (4 + bytes + 15) / 16 != static_cast<uint64_t>(units))
      return Syndrome::local_operation;
    out->length = static_cast<uint32_t>(bytes);
    out->payload = at + 4;
    return Syndrome::ok;
  }
  if (units != 1) return Syndrome::local_operation;
  // 0 stands for 2 GiB in this field.
  if (count == 0 || count > kMaxMessage) return Syndrome::local_length;
  out->length = static_cast<uint32_t>(count);
  out->lkey = static_cast<uint32_t>(number<4>(at + 4));
  out->local = number<8>(at + 8);
  return Syndrome::ok;
}

}  // namespace

Syndrome decode(const mlx5::Entry& entry, uint32_t qpn, uint16_t index, Request* out) {
  const uint8_t* at = entry.bytes;
  const int units = at[7];
  *out = Request{};
  out->op = static_cast<Opcode>(at[3]);
  out->signalled = (at[11] & 0x08) != 0;
  if ((at[11] & 0x20) != 0) out->order = Order::after;
  if ((at[11] & 0x80) != 0) out->order = Order::fence;
  if (at[0] != 0 || number<2>(at + 1) != index || number<3>(at + 4) != qpn || units < 1 ||
      units > 4)
    return Syndrome::local_operation;
  out->imm = static_cast<uint32_t>(number<4>(at + 12));
  switch (out->op) {
    case Opcode::nop:
      return units == 1 ? Syndrome::ok : Syndrome::local_operation;
    case Opcode::send_imm:
      return read_payload(at + 16, units - 1, true, out);
    default:
      break;
  }
  out->remote = number<8>(at + 16);
  out->rkey = static_cast<uint32_t>(number<4>(at + 24));
  switch (out->op) {
    case Opcode::write:
    case Opcode::write_imm:
      return read_payload(at + 32, units - 2, true, out);
    case Opcode::read:
      return read_payload(at + 32, units - 2, false, out);
    case Opcode::fetch_add:
    case Opcode::compare_swap: {
      if (units != 4) return Syndrome::local_operation;
      out->swap_add = number<8>(at + 32);
      out->compare = number<8>(at + 40);
      const Syndrome found = read_payload(at + 48, 1, false, out);
      return found == Syndrome::ok && out->length != 8 ? Syndrome::local_length : found;
    }
    default:
      return Syndrome::local_operation;
  }
}

}  // namespace railshmem::nic::emulated
