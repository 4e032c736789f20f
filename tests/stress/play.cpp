#include "tests/stress/play.hpp"

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "shmem/api/collectives.hpp"
#include "shmem/api/context.hpp"
#include "shmem/api/meetings.hpp"
#include "shmem/api/teams.hpp"
#include "shmem/api/waits.hpp"

namespace railshmem::stress {
namespace {

class Player {
 public:
  Player(Runtime& runtime, uint64_t seed, bool with_atomics)
      : runtime_(runtime),
        seed_(seed),
        with_atomics_(with_atomics),
        layout_{runtime.n_pes()},
        oracle_(runtime.n_pes()),
        memory_(static_cast<unsigned char*>(runtime.calloc(layout_.bytes(), 1))),
        staging_(static_cast<unsigned char*>(runtime.malloc(kSlab * 40))),
        signals_(static_cast<uint64_t*>(
            runtime.calloc(static_cast<std::size_t>(runtime.n_pes()) * kContexts, 8))),
        rung_(static_cast<std::size_t>(runtime.n_pes()) * kContexts) {
    contexts_.push_back(nullptr);  // the default one
    for (int i = 1; i < kContexts; ++i)
      contexts_.push_back(runtime.create_context(runtime.world()));
  }

  void round(int number) {
    const Round plan =
        draw_round(seed_ + static_cast<uint64_t>(number) * 1000003, runtime_.n_pes());
    const auto& mine = plan.operations[static_cast<std::size_t>(runtime_.my_pe())];
    if (plan.late == runtime_.my_pe() && plan.nap_us > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(plan.nap_us));
    fetched_.assign(mine.size(), 0);
    landed_.assign(mine.size(), {});
    settled_ = 0;
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (with_atomics_ || !is_atomic(mine[i].kind)) operation(mine, i);
    for (int i = 0; i < kContexts; ++i) context(i).quiet();
    runtime_.barrier_all();
    collective(plan);
    oracle_.play(plan, with_atomics_);
    compare(plan, number);
    runtime_.sync_all();
  }

  void finish() {
    for (int i = 1; i < kContexts; ++i)
      runtime_.destroy_context(*contexts_[static_cast<std::size_t>(i)]);
    runtime_.free(signals_);
    runtime_.free(staging_);
    runtime_.free(memory_);
  }

 private:
  Context& context(int index) {
    const auto& chosen = contexts_[static_cast<std::size_t>(index)];
    return chosen ? *chosen : runtime_.default_context();
  }

  // Operations of one PE on the same bytes are ordered by waiting for those before; others are free
  // to overtake each other.
  void wait_for_overlaps(const std::vector<Operation>& mine, std::size_t now) {
    const Operation& o = mine[now];
    for (std::size_t i = settled_ < now ? settled_ : now; i < now; ++i) {
      const Operation& before = mine[i];
      if (before.pe == o.pe && before.at < o.at + reach(o) && o.at < before.at + reach(before) &&
          before.kind != Kind::fence && before.kind != Kind::quiet) {
        for (int c = 0; c < kContexts; ++c) context(c).quiet();
        settled_ = now;
        return;
      }
    }
  }

  static std::size_t reach(const Operation& o) {
    if (o.kind == Kind::iput || o.kind == Kind::iget)
      return o.bytes * o.element * std::max(o.dst, o.sst);
    return is_atomic(o.kind) ? 8 : o.bytes;
  }

  void operation(const std::vector<Operation>& mine, std::size_t index) {
    wait_for_overlaps(mine, index);
    const Operation& o = mine[index];
    Context& ctx = context(o.context);
    unsigned char* there = memory_ + o.at;
    // A place of its own for every source: it must stay until quiet.
    unsigned char* source = staging_ + index * kSlab;
    const auto fill = [&](std::size_t bytes) {
      for (std::size_t i = 0; i < bytes; ++i) source[i] = byte_of(o.value, i);
    };
    auto& landed = landed_[index];
    switch (o.kind) {
      case Kind::put:
        fill(o.bytes);
        return ctx.put(there, source, o.bytes, o.pe);
      case Kind::put_nbi:
        fill(o.bytes);
        return ctx.put_nbi(there, source, o.bytes, o.pe);
      case Kind::put_signal: {
        fill(o.bytes);
        // One word per (PE, context): it never goes backwards.
        const auto word = static_cast<std::size_t>(runtime_.my_pe() * kContexts + o.context);
        uint64_t& rung = rung_[static_cast<std::size_t>(o.pe * kContexts + o.context)];
        return ctx.put_signal_nbi(there, source, o.bytes, signals_ + word, ++rung,
                                  device::AtomicOp::set, o.pe);
      }
      case Kind::get:
        landed.resize(o.bytes);
        return ctx.get(landed.data(), there, o.bytes, o.pe);
      case Kind::get_nbi:
        landed.resize(o.bytes);
        if (o.value % 2 == 0) {  // into registered memory, or not
          ctx.get_nbi(source, there, o.bytes, o.pe);
          from_staging_.push_back(index);
          return;
        }
        return ctx.get_nbi(landed.data(), there, o.bytes, o.pe);
      case Kind::iput:
        fill(o.bytes * o.sst * o.element);
        return ctx.iput(there, source, static_cast<std::ptrdiff_t>(o.dst),
                        static_cast<std::ptrdiff_t>(o.sst), o.bytes, o.element, o.pe);
      case Kind::iget:
        landed.resize(o.bytes * o.dst * o.element);
        return ctx.iget(landed.data(), there, static_cast<std::ptrdiff_t>(o.dst),
                        static_cast<std::ptrdiff_t>(o.sst), o.bytes, o.element, o.pe);
      case Kind::atomic:
        if (updates(o)) return update(ctx, o, index);
        fetched_[index] = ctx.atomic_fetch(o.op, there, o.width, o.value, o.compare, o.pe);
        return;
      case Kind::atomic_nbi:
        if (updates(o)) return update(ctx, o, index);
        return ctx.atomic_fetch_nbi(o.op, &fetched_[index], there, o.width, o.value, o.compare,
                                    o.pe, nullptr);
      case Kind::count:
        return ctx.atomic_update(device::AtomicOp::add, there, 8, o.value, o.pe);
      case Kind::fence:
        return ctx.fence();
      case Kind::quiet:
        return ctx.quiet();
    }
  }

  // Forms without a result.
  static bool updates(const Operation& o) {
    return o.op == device::AtomicOp::set || (o.op == device::AtomicOp::add && o.value % 3 == 0);
  }
  void update(Context& ctx, const Operation& o, std::size_t index) {
    ctx.atomic_update(o.op, memory_ + o.at, o.width, o.value, o.pe);
    unknown_.push_back(index);
  }

  void collective(const Round& plan) {
    if (plan.collective == Collective::none) return;
    const auto team =
        runtime_.teams().split_strided(runtime_.meetings(), *runtime_.world(), plan.team.start,
                                       plan.team.stride, plan.team.size, {});
    if (!team) return;
    const auto n = static_cast<std::size_t>(team->n_pes());
    const std::size_t unit = size_of(plan.type);
    const std::size_t bytes = plan.elements * unit;
    unsigned char* source = memory_ + layout_.source();
    unsigned char* dest = memory_ + layout_.dest();
    for (std::size_t i = 0; i < bytes * n; ++i)
      source[i] = source_byte(plan.seed, runtime_.my_pe(), i);
    switch (plan.collective) {
      case Collective::none:
        break;
      case Collective::broadcast:
        broadcast(runtime_, *team, dest, source, bytes, plan.root);
        break;
      case Collective::fcollect:
        fcollect(runtime_, *team, dest, source, bytes);
        break;
      case Collective::collect:
        collect(runtime_, *team, dest, static_cast<std::size_t>(runtime_.n_pes()) * kSlab, source,
                collected(plan, team->my_pe()) * unit);
        break;
      case Collective::alltoall:
        alltoall(runtime_, *team, dest, source, bytes);
        break;
      case Collective::reduce:
        reduce(runtime_, *team, dest, source, plan.elements, plan.type, plan.op);
        break;
    }
    runtime_.teams().destroy(runtime_.meetings(), *team);
  }

  void compare(const Round& plan, int number) {
    const auto& mine = plan.operations[static_cast<std::size_t>(runtime_.my_pe())];
    for (const std::size_t index : from_staging_)
      std::memcpy(landed_[index].data(), staging_ + index * kSlab, landed_[index].size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (!with_atomics_ && is_atomic(mine[i].kind)) continue;
      if (std::find(unknown_.begin(), unknown_.end(), i) != unknown_.end()) continue;
      const uint64_t found =
          landed_[i].empty() ? fetched_[i] : checksum(landed_[i].data(), landed_[i].size());
      if (found != oracle_.result(runtime_.my_pe(), i))
        fail(ErrorKind::argument, "PE ", runtime_.my_pe(), ", round ", number, ", operation ", i,
             " (kind ", static_cast<int>(mine[i].kind), ", context ", mine[i].context, ", to PE ",
             mine[i].pe, ", offset ", mine[i].at, ", ", mine[i].bytes, " bytes): result ", found,
             ", not ", oracle_.result(runtime_.my_pe(), i));
    }
    const auto& expected = oracle_.memory(runtime_.my_pe());
    if (std::memcmp(expected.data(), memory_, expected.size()) != 0) {
      std::size_t at = 0;
      while (expected[at] == memory_[at]) ++at;
      fail(ErrorKind::argument, "PE ", runtime_.my_pe(), ", round ", number, ": offset ", at,
           " (slab of PE ", at / kSlab, ") holds ", static_cast<int>(memory_[at]), ", not ",
           static_cast<int>(expected[at]));
    }
    from_staging_.clear();
    unknown_.clear();
  }

  Runtime& runtime_;
  const uint64_t seed_;
  const bool with_atomics_;
  const Layout layout_;
  Oracle oracle_;
  unsigned char* memory_;
  unsigned char* staging_;
  uint64_t* signals_;
  std::vector<uint64_t> rung_;  // [PE, context]
  std::vector<std::shared_ptr<Context>> contexts_;
  std::size_t settled_ = 0;  // operations before this one are complete
  std::vector<uint64_t> fetched_;
  std::vector<std::vector<unsigned char>> landed_;
  std::vector<std::size_t> from_staging_;
  std::vector<std::size_t> unknown_;  // operations that fetch nothing
};

}  // namespace

void play(Runtime& runtime, uint64_t seed, int rounds, bool with_atomics) {
  Player player(runtime, seed, with_atomics);
  for (int number = 0; number < rounds; ++number) player.round(number);
  player.finish();
}

}  // namespace railshmem::stress
