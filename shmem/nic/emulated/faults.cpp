#include "shmem/nic/emulated/faults.hpp"

namespace railshmem::nic::emulated {
namespace {

using Operation = FaultSettings::Operation;
using mlx5::Opcode;
using mlx5::Syndrome;

bool is_one_of(Opcode op, Operation operation) {
  switch (operation) {
    case Operation::any:
      return true;
    case Operation::write:
      return op == Opcode::write || op == Opcode::write_imm;
    case Operation::read:
      return op == Opcode::read;
    case Operation::atomic:
      return op == Opcode::fetch_add || op == Opcode::compare_swap;
    case Operation::send:
      return op == Opcode::send_imm;
  }
  return false;
}

Syndrome syndrome_of(FaultSettings::Answer answer) {
  switch (answer) {
    case FaultSettings::Answer::access:
      return Syndrome::remote_access;
    case FaultSettings::Answer::retry:
      return Syndrome::transport_retry;
    case FaultSettings::Answer::operation:
      break;
  }
  return Syndrome::remote_operation;
}

}  // namespace

Faults::Faults(const EmulatedSettings& settings, int pe, uint32_t rail)
    : settings_(settings.faults),
      rail_fails_(settings.faults.rail == static_cast<int>(rail)),
      made_at_(arch::clock_ns()) {
  std::seed_seq all{settings.seed, static_cast<uint32_t>(pe), rail};
  random_.seed(all);
}

bool Faults::is_the_one_that_fails(Opcode op) {
  return settings_.fail_at > 0 && is_one_of(op, settings_.fail_operation) &&
         ++candidates_ == settings_.fail_at;
}

Fate Faults::draw(Opcode op) {
  Fate fate;
  if (rail_is_down()) {
    fate.executed = false;
    fate.answer = Syndrome::transport_retry;
    return fate;
  }
  ++drawn_;
  fate.lost = drawn_ == settings_.lose_at || (settings_.lose > 0 && happens(settings_.lose));
  if (settings_.delay > 0 && happens(settings_.delay))
    (below(2) == 0 ? fate.placed_at : fate.answered_at) = arch::clock_ns() + settings_.delay_ns;
  if (is_the_one_that_fails(op)) {
    fate.answer = syndrome_of(settings_.fail_answer);
    // Without an acknowledgement nobody knows; any other answer means that it was not executed.
    fate.executed = fate.answer == Syndrome::transport_retry && below(2) == 0;
  }
  if (rail_fails_ && drawn_ == settings_.rail_after) {
    fate.answer = Syndrome::transport_retry;  // executed, but the acknowledgement was on the rail
    down_ = true;
  }
  return fate;
}

bool Faults::rail_is_down() {
  if (rail_fails_ && !down_ && settings_.rail_after == 0)
    down_ = arch::clock_ns() - made_at_ >= settings_.rail_time_ns;
  return down_;
}

}  // namespace railshmem::nic::emulated
