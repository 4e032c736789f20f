#include "tests/stress/plan.hpp"

#include <random>

#include "shmem/base/error.hpp"

namespace railshmem::stress {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  uint64_t bits() { return random_(); }
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  // Small sizes often, large ones sometimes: where code changes its way.
  std::size_t size(std::size_t most) {
    const std::size_t scale = std::size_t{1} << below(16);
    return 1 + below(std::min(scale, most));
  }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

 private:
  std::mt19937_64 random_;
};

Operation draw_operation(Draw& draw, int me, int n_pes) {
  using device::AtomicOp;
  const Layout layout{n_pes};
  Operation o = {};
  o.pe = static_cast<int>(draw.below(static_cast<std::size_t>(n_pes)));
  o.context = static_cast<int>(draw.below(kContexts));
  o.value = draw.bits();
  o.compare = draw.bits();
  o.kind = draw.of({Kind::put, Kind::put, Kind::put_nbi, Kind::get, Kind::get_nbi, Kind::iput,
                    Kind::iget, Kind::put_signal, Kind::atomic, Kind::atomic, Kind::atomic_nbi,
                    Kind::count, Kind::fence, Kind::quiet});
  switch (o.kind) {
    case Kind::iput:
    case Kind::iget:
      o.element = draw.of<std::size_t>({1, 2, 4, 8, 16});
      o.dst = 1 + draw.below(5);
      o.sst = 1 + draw.below(5);
      o.bytes = 1 + draw.below(60);
      o.at = layout.slab(me) + draw.below(kSlab / 2) / 16 * 16;
      break;
    case Kind::atomic:
    case Kind::atomic_nbi:
      o.width = draw.of({4u, 8u});
      o.at = layout.words(me) + draw.below(kWords) * 8;
      o.op =
          draw.of({AtomicOp::fetch, AtomicOp::set, AtomicOp::add, AtomicOp::swap,
                   AtomicOp::compare_swap, AtomicOp::bit_and, AtomicOp::bit_or, AtomicOp::bit_xor});
      if (draw.one_in(2)) o.compare = 0;  // which is often what is there
      break;
    case Kind::count:
      o.at = layout.counters() + draw.below(kCounters) * 8;
      o.value &= 0xffff;
      break;
    default:
      o.bytes = draw.size(kSlab / 2);
      o.at = layout.slab(me) + draw.below(kSlab - o.bytes);
      if (draw.one_in(3)) o.at = o.at / 8 * 8;
  }
  return o;
}

}  // namespace

Round draw_round(uint64_t seed, int n_pes) {
  Draw draw(seed);
  Round round = {};
  round.seed = seed;
  for (int pe = 0; pe < n_pes; ++pe) {
    round.operations.emplace_back();
    const std::size_t count = draw.below(40);
    for (std::size_t i = 0; i < count; ++i)
      round.operations.back().push_back(draw_operation(draw, pe, n_pes));
  }
  round.collective = draw.of({Collective::none, Collective::broadcast, Collective::fcollect,
                              Collective::collect, Collective::alltoall, Collective::reduce});
  const auto n = static_cast<std::size_t>(n_pes);
  Team& team = round.team;
  team.stride = draw.of({1, 1, 2, -1});
  team.start = static_cast<int>(draw.below(n));
  const int room = team.stride > 0 ? (n_pes - 1 - team.start) / team.stride : team.start;
  team.size = 1 + static_cast<int>(draw.below(static_cast<std::size_t>(room) + 1));
  if (draw.one_in(2)) team = {0, 1, n_pes};
  round.root = static_cast<int>(draw.below(static_cast<std::size_t>(team.size)));
  round.elements = draw.size(kSlab / 8 / n);
  round.type = draw.of({ElementType::uint64, ElementType::int32, ElementType::uint8});
  round.op = draw.of({ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::bit_xor,
                      ReduceOp::bit_and, ReduceOp::prod});
  round.nap_us = draw.one_in(8) ? draw.below(3000) : 0;
  round.late = static_cast<int>(draw.below(n));
  return round;
}

Job draw_job(uint64_t seed) {
  Draw draw(seed);
  Job job;
  job.n_pes = 1 + static_cast<int>(draw.below(5));
  const auto n = static_cast<std::size_t>(job.n_pes);
  const std::size_t nodes = draw.one_in(4) ? 0 : 1 + draw.below(n);
  const std::size_t rails = 1 + draw.below(3);
  std::string emulated = "seed=" + std::to_string(draw.below(1000));
  if (draw.one_in(2)) emulated += ",ordered=off";
  if (draw.one_in(2)) emulated += ",atomics=off";
  std::string faults;
  const auto add = [&](const std::string& part) { faults += (faults.empty() ? "" : ",") + part; };
  if (draw.one_in(3)) add("delay=0.02:" + std::to_string(1 + draw.below(200)) + "us");
  if (draw.one_in(3)) add("reorder=on");
  // Only WRITEs, SETs and READs survive a rail; what else may be under way then ends in an error,
  // which the plan has no place for. So the rounds of such jobs have no atomics: see play.cpp.
  const bool dies = rails > 1 && nodes > 1 && draw.one_in(3);
  if (dies)
    add("rail=" + std::to_string(draw.below(rails)) + "@" + std::to_string(1 + draw.below(3000)));
  job.settings = {
      {"RAILSHMEM_NODES", std::to_string(nodes)},
      {"RAILSHMEM_RAILS", std::to_string(rails)},
      {"RAILSHMEM_EMULATED", emulated},
      {"RAILSHMEM_FAULTS", faults},
      {"RAILSHMEM_HEAP_SIZE", "4M"},
      {"RAILSHMEM_TIMEOUT_S", "60"},
      {"RAILSHMEM_LANES", std::to_string(1 + draw.below(3))},
      {"RAILSHMEM_RING", std::to_string(4 << draw.below(7))},
      {"RAILSHMEM_QUEUE_DEPTH", std::to_string(8 << draw.below(5))},
      {"RAILSHMEM_CHUNK", std::to_string(256 << draw.below(8))},
      {"RAILSHMEM_INFLIGHT_BYTES", std::to_string(4096 << draw.below(8))},
  };
  return job;
}

std::string Job::describe() const {
  std::string out = text(n_pes, " PEs");
  for (const auto& [name, value] : settings)
    if (!value.empty()) out += " " + name + "=" + value;
  return out;
}

}  // namespace railshmem::stress
