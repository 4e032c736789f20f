// The CPU's side of what `railshmem bench proxy --device cuda` times: threads that take what a
// GPU's kernels hand over, and do nothing with it.
#include <sched.h>

#include <cstring>
#include <vector>

#include "python/bindings/bench.hpp"
#include "shmem/api/gpu_side.hpp"

namespace railshmem::python {
namespace {

// A kernel that was never launched must not hang its bench.
constexpr double kPatienceS = 20;

// Spins as long as an answer that is on its way takes, then lets others have the core.
class Patience {
 public:
  // False: enough.
  bool again() {
    if (++looks_ < kSpins)
      arch::relax();
    else
      sched_yield();
    return (looks_ & 0xfff) != 0 || watch_.seconds() < kPatienceS;
  }
  void renew() { looks_ = 0; }

 private:
  static constexpr uint64_t kSpins = 2000;
  const Stopwatch watch_;
  uint64_t looks_ = 0;
};

GpuSide& gpu_of(const RuntimePtr& rt) {
  if (rt->gpu() == nullptr) fail(ErrorKind::argument, "bench: the job runs on CPUs");
  return *rt->gpu();
}

// A ring whose commands go nowhere: kernels that receive context() post to it, whichever PE they
// mean, and whoever calls take() reads them.
class SinkRing {
 public:
  SinkRing(const RuntimePtr& rt, uint32_t shift)
      : runtime_(rt),
        shift_(shift),
        peers_(static_cast<std::size_t>(rt->n_pes())),
        own_(gpu_of(rt).site(), own_bytes()),
        shared_(gpu_of(rt).site(), sizeof(Consumer) + peers_ * sizeof(device::LaneProgress) +
                                       (sizeof(device::CommandSlot) << shift)) {
    gpu_of(rt).copy(own_.as<void>(), image().data(), own_bytes());
  }

  uintptr_t context() const { return own_.address(); }
  // The bare ring, for kernels that know nothing of the library.
  uintptr_t slots() const { return reinterpret_cast<uintptr_t>(commands()); }
  uintptr_t head() const { return reinterpret_cast<uintptr_t>(&consumer()->head); }
  uintptr_t tail() const { return own_.address() + offsetof(Producers, tail); }
  uintptr_t head_seen() const { return own_.address() + offsetof(Producers, head_seen); }
  uint32_t shift() const { return shift_; }

  // Reads the next `count` commands, and says that they are complete when there is nothing else to
  // read. Throws Error(timeout).
  void take(uint64_t count) {
    constexpr uint64_t kTogether = 64;
    const uint64_t slots = uint64_t{1} << shift_;
    const uint64_t end = taken_ + count;
    uint64_t told = taken_;
    device::Command command;
    Patience patience;
    while (taken_ < end) {
      if (device::read_command(commands() + (taken_ & (slots - 1)), device::lap_of(taken_, shift_),
                               &command)) {
        ++taken_;
        if (taken_ - told < kTogether) continue;
      } else if (told == taken_) {
        if (!patience.again())
          fail(ErrorKind::timeout, "bench: ", end - taken_, " of ", count,
               " commands did not come within ", kPatienceS, " s");
        continue;
      }
      tell(taken_);
      told = taken_;
      patience.renew();
    }
    tell(taken_);
  }

 private:
  // Of the GPU's kernels; behind it a lane and a transport for each PE.
  struct Producers {
    device::DeviceContext context;
    device::Ring ring;
    alignas(64) uint64_t tail;
    alignas(64) uint64_t head_seen;
    uint32_t sleeps;  // 0 for ever: the reader never does
  };
  // Of the reading thread, in host memory; behind it the progress of each lane, and the slots.
  struct Consumer {
    alignas(64) uint64_t head;
    alignas(64) uint32_t dead;  // by producers, as the next one
    uint64_t full_waits;
  };

  uint64_t lanes_at() const { return (sizeof(Producers) + 63) / 64 * 64; }
  uint64_t transports_at() const { return lanes_at() + peers_ * sizeof(device::Lane); }
  uint64_t own_bytes() const { return transports_at() + peers_ * sizeof(device::Transport); }

  Consumer* consumer() const { return shared_.as<Consumer>(); }
  device::LaneProgress* progress() const {
    return reinterpret_cast<device::LaneProgress*>(consumer() + 1);
  }
  device::CommandSlot* commands() const {
    return reinterpret_cast<device::CommandSlot*>(progress() + peers_);
  }

  // Every lane has all commands: its peers are one here.
  void tell(uint64_t taken) const {
    arch::store_release(&consumer()->head, taken);
    for (std::size_t pe = 0; pe < peers_; ++pe)
      arch::store_release(&progress()[pe].completed, taken);
  }

  // What the producers' block holds at first.
  std::vector<char> image() const {
    GpuSide& gpu = gpu_of(runtime_);
    Producers first{};
    gpu.copy(&first.context, gpu.context(), sizeof first.context);
    first.context.transport =
        reinterpret_cast<const device::Transport*>(own_.address() + transports_at());
    first.context.lanes = reinterpret_cast<device::Lane*>(own_.address() + lanes_at());
    first.context.n_lanes = first.context.lane_stride = 1;
    first.context.progress = progress();
    first.context.rings =
        reinterpret_cast<device::Ring*>(own_.address() + offsetof(Producers, ring));
    first.ring.slots = commands();
    first.ring.shift = shift_;
    first.ring.tail = reinterpret_cast<uint64_t*>(tail());
    first.ring.head_seen = reinterpret_cast<uint64_t*>(head_seen());
    first.ring.sleep_word =
        reinterpret_cast<uint32_t*>(own_.address() + offsetof(Producers, sleeps));
    first.ring.head = &consumer()->head;
    first.ring.dead = &consumer()->dead;
    first.ring.full_waits = &consumer()->full_waits;
    std::vector<char> out(own_bytes());
    std::memcpy(out.data(), &first, sizeof first);
    device::Lane lane{};
    lane.connected = 1;
    const auto proxy = device::Transport::proxy;
    for (std::size_t pe = 0; pe < peers_; ++pe) {
      std::memcpy(out.data() + lanes_at() + pe * sizeof lane, &lane, sizeof lane);
      std::memcpy(out.data() + transports_at() + pe * sizeof proxy, &proxy, sizeof proxy);
    }
    return out;
  }

  const RuntimePtr runtime_;
  const uint32_t shift_;
  const std::size_t peers_;
  const gpu::DeviceBlock own_;
  const gpu::PinnedBlock shared_;
  uint64_t taken_ = 0;
};

// Answers a kernel that counts `word` up: stores each number to `reply` as soon as it is there,
// from 1 to `count`. Both are host memory that the GPU reaches. Throws Error(timeout).
void answer(uintptr_t word, uintptr_t reply, uint64_t count) {
  const auto* asked = pointer<const uint64_t>(word);
  auto* answered = pointer<uint64_t>(reply);
  Patience patience;
  for (uint64_t number = 1; number <= count; ++number) {
    while (arch::load_acquire(asked) < number)
      if (!patience.again())
        fail(ErrorKind::timeout, "bench: question ", number, " of ", count, " did not come within ",
             kPatienceS, " s");
    arch::store_release(answered, number);
    patience.renew();
  }
}

}  // namespace

void bind_bench_gpu(py::module_& m) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<SinkRing>(m, "SinkRing", "A ring whose commands are read and dropped.")
      .def(py::init<const RuntimePtr&, uint32_t>(), py::arg("runtime"), py::arg("shift"),
           Released())
      .def_property_readonly("context", &SinkRing::context)
      .def_property_readonly("slots", &SinkRing::slots)
      .def_property_readonly("head", &SinkRing::head)
      .def_property_readonly("tail", &SinkRing::tail)
      .def_property_readonly("head_seen", &SinkRing::head_seen)
      .def_property_readonly("shift", &SinkRing::shift)
      .def("take", &SinkRing::take, py::arg("count"), Released());
  m.def("answer", &answer, py::arg("word"), py::arg("reply"), py::arg("count"), Released());
}

}  // namespace railshmem::python
