// The library's operations with heaps in GPU memory, on GPUs that are not there: what CPU code
// does by the driver, and what kernels do.
#include <doctest/doctest.h>

#include <numeric>

#include "shmem/api/collectives.hpp"
#include "shmem/api/gpu_side.hpp"
#include "tests/cpp/standin.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;
using device::AtomicOp;
using device::Compare;

namespace {

std::string standin_kernels(const std::string&, const std::string&) {
  return "STANDIN";
}

Environment on_gpus(Environment environment) {
  environment["RAILSHMEM_DEVICE"] = "cuda";
  environment["RAILSHMEM_GPU_DRIVER"] = STANDIN_CUDA;
  return environment;
}

// Runs it on GPUs: 2 cards, so that 4 PEs share them.
template <class Body>
void run_on_gpus(int n_pes, const Environment& environment, const Body& body) {
  set_standin({});
  run_pes(n_pes, on_gpus(environment), body, standin_kernels);
}

template <class T>
std::vector<T> seen(Runtime& runtime, const T* at, std::size_t count) {
  std::vector<T> out(count);
  runtime.gpu()->copy(out.data(), at, count * sizeof(T));
  return out;
}
template <class T>
void write(Runtime& runtime, T* at, const std::vector<T>& values) {
  runtime.gpu()->copy(at, values.data(), values.size() * sizeof(T));
}
template <class T>
T* symmetric(Runtime& runtime, std::size_t count) {
  return static_cast<T*>(runtime.calloc(count, sizeof(T)));
}
template <class T>
void expect(const char* what, const std::vector<T>& found, const std::vector<T>& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (found[i] != wanted[i])
      fail(ErrorKind::argument, what, ": element ", i, " is ", found[i], ", not ", wanted[i]);
}

// From one word to what is cut into pieces.
const std::size_t kCounts[] = {1, 3, 1000, 100'003};

std::vector<uint64_t> given(int pe, std::size_t count, uint64_t round) {
  std::vector<uint64_t> out(count);
  std::iota(out.begin(), out.end(), (static_cast<uint64_t>(pe) + 1) << 32 | round << 20);
  return out;
}

}  // namespace

TEST_CASE("gpu job: puts with signals and gets arrive, from the heap and from the program") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_on_gpus(4, environment_of(shape), [](Runtime& runtime) {
      const int me = runtime.my_pe();
      const int next = (me + 1) % 4;
      const int previous = (me + 3) % 4;
      constexpr std::size_t kMost = 100'003;
      auto* inbox = symmetric<uint64_t>(runtime, kMost);
      auto* source = symmetric<uint64_t>(runtime, kMost);
      auto* fetched = symmetric<uint64_t>(runtime, kMost);
      auto* signal = symmetric<uint64_t>(runtime, 1);
      uint64_t round = 0;
      for (const std::size_t count : kCounts)
        for (const bool from_heap : {true, false}) {
          ++round;
          const std::vector<uint64_t> mine = given(me, count, round);
          write(runtime, source, mine);
          runtime.default_context().put_signal(inbox, from_heap ? source : mine.data(), count * 8,
                                               signal, round, AtomicOp::set, next);
          signal_wait_until(runtime, signal, Compare::greater_equal, round);
          expect("put", seen(runtime, inbox, count), given(previous, count, round));
          std::vector<uint64_t> own(count);
          runtime.barrier_all();
          void* const to = from_heap ? static_cast<void*>(fetched) : own.data();
          runtime.default_context().get(to, source, count * 8, next);
          if (from_heap) own = seen(runtime, fetched, count);
          expect("get", own, given(next, count, round));
          runtime.barrier_all();
        }
    }));
  }
}

TEST_CASE("gpu job: atomics on a GPU's words are atomic, whoever makes them") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_on_gpus(4, environment_of(shape), [](Runtime& runtime) {
      auto* words = symmetric<uint64_t>(runtime, 2);
      auto* narrow = symmetric<uint32_t>(runtime, 1);
      Context& context = runtime.default_context();
      constexpr uint64_t kRounds = 20;
      uint64_t sum = 0;
      for (uint64_t i = 0; i < kRounds; ++i) {
        sum += context.atomic_fetch(AtomicOp::add, words, 8, 1, 0, 0);
        context.atomic_update(AtomicOp::add, words + 1, 8, sum == 0 ? 1 : 2, 3);
        context.atomic_update(AtomicOp::add, narrow, 4, 1, 2);
      }
      context.quiet();
      runtime.barrier_all();
      if (runtime.my_pe() == 0) expect("sum", seen(runtime, words, 1), {4 * kRounds});
      if (runtime.my_pe() == 2)
        expect("narrow", seen(runtime, narrow, 1), {static_cast<uint32_t>(4 * kRounds)});
      runtime.barrier_all();
    }));
  }
}

TEST_CASE("gpu job: collectives and strided puts have the results that they have on CPUs") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_on_gpus(4, environment_of(shape), [](Runtime& runtime) {
      const int me = runtime.my_pe();
      Team& world = *runtime.world();
      constexpr std::size_t kMost = 20'000;
      auto* source = symmetric<uint64_t>(runtime, 4 * kMost);
      auto* dest = symmetric<uint64_t>(runtime, 4 * kMost);
      for (const std::size_t count : {std::size_t{2}, kMost}) {
        write(runtime, source, given(me, 4 * count, 1));
        broadcast(runtime, world, dest, source, count * 8, 2);
        expect("broadcast", seen(runtime, dest, count), given(2, count, 1));
        alltoall(runtime, world, dest, source, count * 8);
        const auto blocks = seen(runtime, dest, 4 * count);
        for (int pe = 0; pe < 4; ++pe)
          for (const std::size_t i : {std::size_t{0}, count - 1}) {
            const std::size_t from = static_cast<std::size_t>(me) * count + i;
            expect<uint64_t>("alltoall", {blocks[static_cast<std::size_t>(pe) * count + i]},
                             {given(pe, 4 * count, 1)[from]});
          }
        reduce(runtime, world, dest, source, count, ElementType::uint64, ReduceOp::max);
        expect("max", seen(runtime, dest, count), given(3, count, 1));
        runtime.barrier_all();
        runtime.default_context().iput(dest, source, 2, 4, count, 8, (me + 1) % 4);
        runtime.barrier_all();
        const auto strided = seen(runtime, dest, 2 * count);
        expect<uint64_t>("iput", {strided[0], strided[2 * (count - 1)]},
                         {given((me + 3) % 4, 4 * count, 1)[0],
                          given((me + 3) % 4, 4 * count, 1)[4 * (count - 1)]});
        runtime.barrier_all();
      }
    }));
  }
}

TEST_CASE("gpu job: kernels put and ring, wait, get, add and meet") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_on_gpus(4, environment_of(shape), [](Runtime& runtime) {
      const int me = runtime.my_pe();
      const int next = (me + 1) % 4, previous = (me + 3) % 4;
      GpuSide& gpu = *runtime.gpu();
      constexpr std::size_t kCount = 4000;
      auto* inbox = symmetric<uint64_t>(runtime, kCount);
      auto* source = symmetric<uint64_t>(runtime, kCount);
      auto* fetched = symmetric<uint64_t>(runtime, kCount);
      auto* signal = symmetric<uint64_t>(runtime, 1);
      auto* count = symmetric<uint64_t>(runtime, 1);
      // PEs of one process share each card's default stream, where one's barrier would delay
      // another's.
      const gpu::OwnedStream stream(gpu.site(), true, false);
      gpu::Launch how;
      how.stream = stream.get();
      const auto launch = [&](const char* kernel, uint32_t blocks, auto... arguments) {
        how.blocks = blocks;
        how.threads = blocks > 1 ? 256 : 1;
        gpu.launch(gpu.kernel("core", kernel), how, gpu.context(), arguments...);
      };
      for (uint64_t round = 1; round <= 3; ++round) {
        write(runtime, source, given(me, kCount, round));
        launch("rsh_barrier_all", 1);
        launch("rsh_put_signal", 1, static_cast<void*>(inbox), static_cast<const void*>(source),
               uint64_t{kCount * 8}, signal, round, static_cast<uint32_t>(AtomicOp::set),
               int32_t{next});
        launch("rsh_wait_until", 1, static_cast<const void*>(signal), 8u, 0u,
               static_cast<uint32_t>(Compare::equal), round);
        launch("rsh_get", 4, static_cast<void*>(fetched), static_cast<const void*>(source),
               uint64_t{kCount * 8}, int32_t{next});
        launch("rsh_atomic", 1, static_cast<uint32_t>(AtomicOp::add), static_cast<void*>(count), 8u,
               uint64_t{2}, uint64_t{0}, int32_t{0}, static_cast<void*>(nullptr));
        launch("rsh_barrier_all", 1);
        gpu.driver().synchronize(stream.get());
        expect("inbox", seen(runtime, inbox, kCount), given(previous, kCount, round));
        expect("fetched", seen(runtime, fetched, kCount), given(next, kCount, round));
      }
      if (me == 0) expect<uint64_t>("count", seen(runtime, count, 1), {4 * 3 * 2});
      runtime.barrier_all();
    }));
  }
}

TEST_CASE("gpu job: PEs share the cards, and are told which one they have") {
  run_on_gpus(3, {}, [](Runtime& runtime) {
    CHECK(runtime.gpu()->site().device == runtime.my_pe() % 2);
    CHECK(contains(runtime.device_reason(), "2 GPUs to see"));
  });
}

TEST_CASE("gpu job: one PE that gets no memory is an error on all, with sizes") {
  set_standin({{"DEVICES", "1"}, {"MEMORY", "40M"}});
  const std::string error =
      error_of([] { run_pes(3, on_gpus({}), [](Runtime&) { FAIL("made"); }, standin_kernels); });
  CHECK(contains(error, "no memory for a heap of "));
  CHECK(contains(error, " free of 40 MiB; lower RAILSHMEM_HEAP_SIZE or start fewer PEs per GPU"));
}

TEST_CASE("gpu job: no GPU, or none asked for: CPUs, with the reason") {
  set_standin({{"DEVICES", "0"}});
  Environment environment = on_gpus({});
  CHECK(contains(error_of([&] { run_pes(2, environment, [](Runtime&) { FAIL("made"); }); }),
                 "RAILSHMEM_DEVICE=cuda: PE 0 has no cuda GPU: cuInit: error 100"));
  environment["RAILSHMEM_DEVICE"] = "auto";
  run_pes(2, environment, [](Runtime& runtime) {
    CHECK(runtime.gpu() == nullptr);
    CHECK(contains(runtime.device_reason(), "PE 0 has no GPU like the others"));
  });
}
