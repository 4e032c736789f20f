#include <doctest/doctest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "shmem/api/context.hpp"
#include "shmem/api/report.hpp"
#include "shmem/api/waits.hpp"
#include "shmem/base/error.hpp"
#include "shmem/bootstrap/threads.hpp"
#include "shmem/trace/counters.hpp"
#include "shmem/trace/moments.hpp"
#include "shmem/trace/recorder.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using device::Moment;
using device::TraceEvent;
using trace::ChunkHeader;
using trace::FileHeader;
using trace::Recorder;

namespace {

const std::vector<std::string> kWaits = {"nothing", "a word"};

// A directory that goes with its owner.
class Scratch {
 public:
  Scratch() { REQUIRE(::mkdtemp(path_) != nullptr); }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/railshmem-trace-XXXXXX";
};

struct Timeline {
  FileHeader header;
  std::map<uint32_t, std::string> tracks;              // by writer
  std::map<uint32_t, std::vector<TraceEvent>> events;  // by writer, in order of recording

  std::size_t count(Moment moment) const {
    std::size_t found = 0;
    for (const auto& [writer, list] : events)
      for (const TraceEvent& event : list) found += event.moment == number_of(moment);
    return found;
  }
};

Timeline read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  const std::string bytes = all.str();
  Timeline out;
  REQUIRE(bytes.size() >= trace::kHeaderBytes);
  std::memcpy(&out.header, bytes.data(), sizeof out.header);
  REQUIRE(out.header.magic == trace::kMagic);
  REQUIRE(bytes.size() == trace::kHeaderBytes + out.header.chunks * trace::kChunkBytes);
  std::map<uint32_t, std::map<uint64_t, std::vector<TraceEvent>>> chunks;
  for (uint32_t i = 0; i < out.header.chunks; ++i) {
    const char* at = bytes.data() + trace::kHeaderBytes + i * uint64_t{trace::kChunkBytes};
    ChunkHeader head;
    std::memcpy(&head, at, sizeof head);
    out.tracks[head.writer] = head.track;
    for (uint64_t n = 0; n < trace::kEventsPerChunk; ++n) {
      TraceEvent event;
      std::memcpy(&event, at + sizeof head + n * sizeof event, sizeof event);
      if (event.moment != 0) chunks[head.writer][head.sequence].push_back(event);
    }
  }
  for (const auto& [writer, sequences] : chunks)
    for (const auto& [sequence, list] : sequences)
      out.events[writer].insert(out.events[writer].end(), list.begin(), list.end());
  return out;
}

void record(const Recorder& recorder, uint64_t id) {
  device::record_instant(recorder.hook(), Moment::ring_posted, 8, 1, 0, 2, id);
}

}  // namespace

TEST_CASE("trace: nobody records without a directory, and a hook of null does nothing") {
  const auto job = std::make_shared<ThreadJob>(1, 10.0);
  ThreadBootstrap alone(job, 0);
  CHECK(trace::start_recording("", alone, "host", true, kWaits) == nullptr);
  device::record_instant(nullptr, Moment::put, 8, 1);
  const device::TraceSpan span(nullptr, Moment::put);
}

TEST_CASE("trace: events come back as recorded, also while the recorder lives") {
  const Scratch scratch;
  const Recorder recorder(scratch.path() + "/made/for/it", 3, 8, "host7", kWaits);
  {
    const device::TraceSpan span(recorder.hook(), Moment::put, 4096, 5);
  }
  record(recorder, 77);
  // As a reader of a killed PE's file finds it: nothing was closed or flushed.
  const Timeline seen = read_file(recorder.path());
  CHECK(recorder.path() == scratch.path() + "/made/for/it/pe-0003.trace");
  CHECK(seen.header.pe == 3);
  CHECK(seen.header.n_pes == 8);
  CHECK(seen.header.closed == 0);
  CHECK(std::string(seen.header.host) == "host7");
  REQUIRE(seen.events.size() == 1);
  const auto& events = seen.events.begin()->second;
  REQUIRE(events.size() == 2);
  CHECK(events[0].moment == number_of(Moment::put));
  CHECK(events[0].bytes == 4096);
  CHECK(events[0].peer == 5);
  CHECK(events[0].rail == -1);
  CHECK(events[1].id == 77);
  CHECK(events[1].at_ns >= events[0].at_ns + events[0].duration_ns);
}

TEST_CASE("trace: a span also ends where an exception leaves it") {
  const Scratch scratch;
  const Recorder recorder(scratch.path(), 0, 1, "host", kWaits);
  const auto interrupted = [&] {
    const device::TraceSpan span(recorder.hook(), Moment::get);
    fail(ErrorKind::timeout, "late");
  };
  CHECK_THROWS_AS(interrupted(), Error);
  CHECK(read_file(recorder.path()).count(Moment::get) == 1);
}

TEST_CASE("trace: each thread records alone, and nothing is lost among many") {
  constexpr uint64_t kThreads = 8;
  constexpr uint64_t kEvents = 5000;  // several chunks
  const Scratch scratch;
  const Recorder recorder(scratch.path(), 0, 1, "host", kWaits);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> started{0};
  for (uint64_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      ++started;
      while (started < kThreads) std::this_thread::yield();  // so that no writer is handed on
      for (uint64_t i = 0; i < kEvents; ++i) record(recorder, thread * kEvents + i);
    });
  for (std::thread& thread : threads) thread.join();
  const Timeline seen = read_file(recorder.path());
  CHECK(seen.header.lost == 0);
  CHECK(seen.header.overwritten == 0);
  std::set<uint64_t> ids;
  for (const auto& [writer, events] : seen.events) {
    CHECK(events.size() % kEvents == 0);
    for (std::size_t i = 0; i < events.size(); ++i) {
      ids.insert(events[i].id);
      if (i % kEvents > 0) CHECK(events[i].id == events[i - 1].id + 1);
    }
  }
  CHECK(ids.size() == kThreads * kEvents);
}

// A dispatch starts a thread per block each time: a chunk for each of them would fill the file.
TEST_CASE("trace: threads that come and go share one writer") {
  const Scratch scratch;
  const Recorder recorder(scratch.path(), 0, 1, "host", kWaits);
  for (uint64_t i = 0; i < 100; ++i) std::thread([&] { record(recorder, i); }).join();
  const Timeline seen = read_file(recorder.path());
  CHECK(seen.header.chunks == 1);
  REQUIRE(seen.events.size() == 1);
  CHECK(seen.events.begin()->second.size() == 100);
}

TEST_CASE("trace: the blocks of a kernel have tracks of their own") {
  const Scratch scratch;
  const Recorder recorder(scratch.path(), 0, 1, "host", kWaits);
  for (int launch = 0; launch < 3; ++launch)
    arch::launch(3, [&] { record(recorder, arch::block()); });
  const Timeline seen = read_file(recorder.path());
  CHECK(seen.count(Moment::ring_posted) == 9);
  for (const auto& [writer, events] : seen.events)
    for (const TraceEvent& event : events) {
      const bool named = seen.tracks.at(writer) == text("kernel block ", event.id);
      CHECK(named == (event.id > 0));  // block 0 runs in the caller's thread
    }
}

TEST_CASE("trace: a full file keeps the newest events and says how many went") {
  constexpr uint64_t kEvents = 10 * trace::kEventsPerChunk + 7;
  const Scratch scratch;
  const Recorder recorder(scratch.path(), 0, 1, "host", kWaits, 3);
  for (uint64_t i = 0; i < kEvents; ++i) record(recorder, i);
  const Timeline seen = read_file(recorder.path());
  CHECK(seen.header.chunks == 3);
  const auto& events = seen.events.begin()->second;
  REQUIRE(events.size() == 2 * trace::kEventsPerChunk + 7);
  CHECK(seen.header.overwritten + events.size() == kEvents);
  for (std::size_t i = 0; i < events.size(); ++i)
    CHECK(events[i].id == kEvents - events.size() + i);
  // A thread that comes when every chunk is somebody's has nowhere to write.
  arch::launch(2, [&] {
    if (arch::block() == 1) record(recorder, 0);
  });
  CHECK(read_file(recorder.path()).header.lost == 1);
}

TEST_CASE("trace: a recorder leaves the file of another one alone") {
  const Scratch scratch;
  auto first = std::make_unique<Recorder>(scratch.path(), 0, 1, "host", kWaits);
  const Recorder second(scratch.path(), 0, 1, "host", kWaits);
  record(*first, 1);  // into a file without a name: truncating it would end this process
  first.reset();
  for (uint64_t id : {uint64_t{2}, uint64_t{3}}) record(second, id);
  CHECK(read_file(second.path()).count(Moment::ring_posted) == 2);
}

TEST_CASE("trace: a directory that cannot be made is refused by name") {
  const Scratch scratch;
  std::ofstream(scratch.path() + "/file") << "in the way";
  try {
    const Recorder recorder(scratch.path() + "/file/below", 0, 1, "host", kWaits);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::init);
    CHECK(std::string(error.what()).find(scratch.path() + "/file/below") != std::string::npos);
  }
}

TEST_CASE("trace: every moment and every wait has a name, and all fit into the header") {
  const std::string names = trace::moments_text(waiting_names());
  CHECK(names.size() < trace::kHeaderBytes - sizeof(FileHeader));
  std::istringstream lines(names);
  uint32_t expected = 1;
  for (std::string line; std::getline(lines, line); ++expected) {
    CHECK(line.rfind(text(expected, "\t"), 0) == 0);
    CHECK(std::count(line.begin(), line.end(), '\t') == 6);
  }
  CHECK(expected > number_of(Moment::waiting) + 10);
}

TEST_CASE("trace: clocks are compared by barriers, whose bounds hold for any skew") {
  // PE 0's clock is t, ours t + 5000. Barriers release at t = 100 and 200; the second was tighter.
  const trace::Meeting mine[] = {{5050, 5160}, {5190, 5210}};
  const trace::Meeting theirs[] = {{20, 130}, {196, 204}};
  const trace::ClockOffset offset = trace::offset_between({mine, 2}, {theirs, 2});
  CHECK(offset.ahead_ns <= 5000 + static_cast<int64_t>(offset.error_ns));
  CHECK(offset.ahead_ns >= 5000 - static_cast<int64_t>(offset.error_ns));
  CHECK(offset.error_ns == 14);
}

TEST_CASE("trace: a clock ahead of PE 0's, or behind, is found within its error") {
  for (const int64_t ahead : {int64_t{-7000000000}, int64_t{-3}, int64_t{0}, int64_t{123456789}}) {
    std::vector<trace::Meeting> mine;
    std::vector<trace::Meeting> theirs;
    for (uint64_t round = 0; round < 8; ++round) {
      const uint64_t release = 100000000000 + round * 50000;
      const auto ours = static_cast<uint64_t>(static_cast<int64_t>(release) + ahead);
      mine.push_back({ours - 900 - round, ours + 40 * round});
      theirs.push_back({release - 10 * round, release + 700 - 60 * round});
    }
    const trace::ClockOffset offset = trace::offset_between(mine, theirs);
    CHECK(std::abs(offset.ahead_ns - ahead) <= static_cast<int64_t>(offset.error_ns));
    CHECK(offset.error_ns < 800);
  }
}

TEST_CASE("trace: all PEs of a run carry its number, and one that cannot write stops all") {
  const Scratch scratch;
  const std::string directory = scratch.path() + "/run";
  testing::run_pes(3, {{"RAILSHMEM_TRACE", directory}, {"RAILSHMEM_NODES", "3"}},
                   [](Runtime& runtime) { runtime.barrier_all(); });
  std::set<uint64_t> jobs;
  for (int pe = 0; pe < 3; ++pe) {
    const Timeline seen = read_file(text(directory, "/pe-000", pe, ".trace"));
    jobs.insert(seen.header.job);
    CHECK(seen.header.closed == 1);
    CHECK(seen.header.clock_ahead_ns == 0);  // one host
  }
  CHECK(jobs.size() == 1);
  // PE 1's file cannot be replaced: a directory has its name.
  std::filesystem::create_directories(scratch.path() + "/pe-0001.trace/kept");
  try {
    testing::run_pes(3, {{"RAILSHMEM_TRACE", scratch.path()}}, [](Runtime&) {});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("PE 1: ") != std::string::npos);
    CHECK(std::string(error.what()).find("pe-0001.trace") != std::string::npos);
  }
}

// Each layer tells its part of a put: the call, the command in the ring, the request on the wire.
TEST_CASE("trace: a job's calls, commands and requests are all there, and end") {
  const Scratch scratch;
  constexpr int kPuts = 50;
  testing::run_pes(2, {{"RAILSHMEM_TRACE", scratch.path()}, {"RAILSHMEM_NODES", "2"}},
                   [](Runtime& runtime) {
                     auto* words = static_cast<uint64_t*>(runtime.malloc(kPuts * 8));
                     const uint64_t value = 7;
                     for (int i = 0; i < kPuts; ++i)
                       runtime.default_context().put(words + i, &value, 8, 1 - runtime.my_pe());
                     runtime.barrier_all();
                     uint64_t back = 0;
                     runtime.default_context().get(&back, words, 8, 1 - runtime.my_pe());
                     runtime.barrier_all();
                   });
  for (int pe = 0; pe < 2; ++pe) {
    const Timeline seen = read_file(text(scratch.path(), "/pe-000", pe, ".trace"));
    CHECK(seen.count(Moment::put) == kPuts);
    CHECK(seen.count(Moment::get) == 1);
    CHECK(seen.count(Moment::malloc) == 1);
    CHECK(seen.count(Moment::meeting) >= 4);
    CHECK(seen.count(Moment::ring_posted) > kPuts);
    CHECK(seen.count(Moment::ring_command) == seen.count(Moment::ring_posted));
    CHECK(seen.count(Moment::nic_posted) > kPuts);
    CHECK(seen.count(Moment::nic_completed) == seen.count(Moment::nic_posted));
    std::map<uint64_t, uint64_t> taken;  // by command
    for (const auto& [writer, events] : seen.events)
      for (const TraceEvent& event : events)
        if (event.moment == number_of(Moment::ring_command)) taken[event.id] = event.at_ns;
    for (const auto& [writer, events] : seen.events)
      for (const TraceEvent& event : events)
        if (event.moment == number_of(Moment::ring_posted)) {
          REQUIRE(taken.count(event.id) == 1);
          CHECK(taken[event.id] >= event.at_ns);
        }
  }
}

TEST_CASE("trace: a wait that gave up is in the timeline with what it waited for") {
  const Scratch scratch;
  testing::run_pes(1, {{"RAILSHMEM_TRACE", scratch.path()}, {"RAILSHMEM_TIMEOUT_S", "0.05"}},
                   [](Runtime& runtime) {
                     auto* word = static_cast<uint64_t*>(runtime.calloc(1, 8));
                     CHECK_THROWS_AS(wait_until<uint64_t>(runtime, word, device::Compare::equal, 5),
                                     Error);
                   });
  const Timeline seen = read_file(scratch.path() + "/pe-0000.trace");
  const uint32_t wait = number_of(Moment::waiting) + static_cast<uint32_t>(device::Waiting::word);
  std::vector<TraceEvent> waits;
  for (const TraceEvent& event : seen.events.begin()->second)
    if (event.moment == wait) waits.push_back(event);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].bytes == 5);  // expected
  CHECK(waits[0].duration_ns >= 50000000);
}

TEST_CASE("counters: what threads counted adds up, also of those that have ended") {
  using device::Transport;
  using trace::Operation;
  trace::Counters counters;
  trace::Counters others;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) counters.count(Operation::put, Transport::p2p, 8);
      others.count(Operation::get, Transport::proxy, 100);
      counters.count(Operation::atomic, Transport::proxy, 4);
    });
  trace::Counters::Sums seen = counters.sum();  // while they count
  for (std::thread& thread : threads) thread.join();
  const auto of = [](const trace::Counters::Sums& sums, Transport by, Operation operation) {
    return sums[static_cast<std::size_t>(by)][static_cast<std::size_t>(operation)];
  };
  CHECK(of(seen, Transport::p2p, Operation::put).operations <= 80000);
  seen = counters.sum();
  CHECK(of(seen, Transport::p2p, Operation::put).operations == 80000);
  CHECK(of(seen, Transport::p2p, Operation::put).bytes == 640000);
  CHECK(of(seen, Transport::proxy, Operation::atomic).bytes == 32);
  CHECK(of(seen, Transport::proxy, Operation::get).operations == 0);
  CHECK(of(others.sum(), Transport::proxy, Operation::get).bytes == 800);
}

// Counters of a runtime that is gone may lie where those of the next one are: its threads must not
// go on counting for the old.
TEST_CASE("counters: a thread that outlives counters counts for the next ones from zero") {
  for (uint64_t round = 0; round < 50; ++round) {
    const auto counters = std::make_unique<trace::Counters>();
    for (uint64_t i = 0; i <= round; ++i)
      counters->count(trace::Operation::get, device::Transport::p2p, 1);
    CHECK(counters->sum()[0][1].operations == round + 1);
  }
}

TEST_CASE("counters: host operations are counted by transport, on every thread") {
  testing::run_pes(2, {{"RAILSHMEM_NODES", "2"}}, [](Runtime& runtime) {
    using device::Transport;
    auto* words = static_cast<uint64_t*>(runtime.malloc(1024));
    Context& context = runtime.default_context();
    const int me = runtime.my_pe();
    char data[100] = {};
    std::thread other([&] { context.put(words, data, 100, 1 - me); });
    other.join();
    context.put(words + 40, data, 100, me);  // beside what the peer writes
    context.put_signal(words, data, 16, words + 100, 1, device::AtomicOp::set, 1 - me);
    context.get(data, words, 40, 1 - me);
    context.atomic_update(device::AtomicOp::add, words + 90, 8, 1, me);
    const trace::Counters::Sums sums = runtime.operation_counts();
    const auto& near = sums[static_cast<std::size_t>(Transport::p2p)];
    const auto& far = sums[static_cast<std::size_t>(Transport::proxy)];
    const auto of = [](const auto& counts, trace::Operation operation) {
      const trace::Count& count = counts[static_cast<std::size_t>(operation)];
      return std::make_pair(count.operations, count.bytes);
    };
    using Pair = std::pair<uint64_t, uint64_t>;
    CHECK(of(near, trace::Operation::put) == Pair(1, 100));
    CHECK(of(far, trace::Operation::put) == Pair(2, 116));
    CHECK(of(far, trace::Operation::signal) == Pair(1, 8));
    CHECK(of(far, trace::Operation::get) == Pair(1, 40));
    CHECK(of(far, trace::Operation::atomic) == Pair(1, 8));  // also on the own heap
    runtime.barrier_all();
  });
}
