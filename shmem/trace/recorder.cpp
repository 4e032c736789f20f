#include "shmem/trace/recorder.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>

#include "shmem/base/error.hpp"
#include "shmem/trace/moments.hpp"

namespace railshmem::trace {
namespace {

using device::TraceEvent;

std::string path_of(const std::string& directory, int pe) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail(ErrorKind::init, "RAILSHMEM_TRACE: cannot make ", directory, ": ", error.message());
  char name[32];
  std::snprintf(name, sizeof name, "pe-%04d.trace", pe);
  return directory + "/" + name;
}

// A block of a kernel has a track whatever thread runs it; others are called as their thread is.
std::string track_of_this_thread() {
  if (arch::block() > 0) return text("kernel block ", arch::block());
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return text(name, ::gettid() == ::getpid() ? " (main)" : "");
}

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  std::snprintf(to, N, "%s", from.c_str());
}

}  // namespace

Recorder::Recorder(const std::string& directory, int pe, int n_pes, const std::string& host,
                   const std::vector<std::string>& waits, uint64_t max_chunks)
    : path_(path_of(directory, pe)), max_chunks_(max_chunks), hook_{&Recorder::record, this} {
  const std::string names = moments_text(waits);
  const auto refuse = [&](const char* what, const std::string& why) {
    fail(ErrorKind::init, "RAILSHMEM_TRACE: cannot ", what, " ", path_, ": ", why);
  };
  // Not truncated but replaced: another runtime may still have the old file mapped.
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) refuse("replace", errno_text());
  file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file_.valid()) refuse("create", errno_text());
  // Space is taken before it is mapped memory: a full disk must not end the process.
  const int missing = ::posix_fallocate(file_.get(), 0, kHeaderBytes);
  if (missing != 0) refuse("write", std::strerror(missing));
  void* mapped = ::mmap(nullptr, kHeaderBytes + max_chunks_ * kChunkBytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED, file_.get(), 0);
  if (mapped == MAP_FAILED) refuse("map", errno_text());
  base_ = static_cast<char*>(mapped);

  FileHeader& head = *new (base_) FileHeader{};
  head.version = kVersion;
  head.header_bytes = kHeaderBytes;
  head.chunk_bytes = kChunkBytes;
  head.event_bytes = sizeof(TraceEvent);
  head.pe = pe;
  head.n_pes = n_pes;
  head.pid = ::getpid();
  head.names_bytes =
      static_cast<uint32_t>(std::min<std::size_t>(names.size(), kHeaderBytes - sizeof(FileHeader)));
  copy_text(head.host, host);
  std::memcpy(base_ + sizeof(FileHeader), names.data(), head.names_bytes);
  head.magic = kMagic;  // last: a file without it has no header yet
}

Recorder::~Recorder() {
  header().closed = 1;
  ::munmap(base_, kHeaderBytes + max_chunks_ * kChunkBytes);
}

void Recorder::set_job(uint64_t job, const ClockOffset& clock) {
  header().clock_ahead_ns = clock.ahead_ns;
  header().clock_error_ns = clock.error_ns;
  header().job = job;
}

void Recorder::record(void* self, const TraceEvent& event) {
  auto& recorder = *static_cast<Recorder*>(self);
  Writer& writer = recorder.writers_.mine(
      [](const Writer& left) { return left.track == track_of_this_thread(); },
      [&] {
        return std::make_unique<Writer>(Writer{track_of_this_thread(), recorder.n_writers_++});
      });
  if (writer.next == writer.end && !recorder.take_chunk(writer)) {
    __atomic_fetch_add(&recorder.header().lost, 1, __ATOMIC_RELAXED);
    return;
  }
  TraceEvent* at = writer.next++;
  TraceEvent unfinished = event;
  unfinished.moment = 0;
  *at = unfinished;
  // Release: whoever reads the file of a process that is gone, or still runs, finds whole events.
  __atomic_store_n(&at->moment, event.moment, __ATOMIC_RELEASE);
}

// A chunk of nobody's while there is one, then the thread's own oldest.
bool Recorder::take_chunk(Writer& writer) {
  int index = add_chunk();
  if (index >= 0) {
    writer.chunks.push_back(static_cast<uint32_t>(index));
  } else if (!writer.chunks.empty()) {
    index = static_cast<int>(writer.chunks[writer.sequence % writer.chunks.size()]);
    __atomic_fetch_add(&header().overwritten, kEventsPerChunk, __ATOMIC_RELAXED);
  } else {
    return false;
  }
  char* chunk = base_ + kHeaderBytes + static_cast<uint64_t>(index) * kChunkBytes;
  std::memset(chunk, 0, kChunkBytes);
  auto& head = *new (chunk) ChunkHeader{writer.sequence++, writer.number, {}};
  copy_text(head.track, writer.track);
  writer.next = reinterpret_cast<TraceEvent*>(chunk + sizeof(ChunkHeader));
  writer.end = writer.next + kEventsPerChunk;
  return true;
}

// -1: the file has reached its limit, or the disk has.
int Recorder::add_chunk() {
  if (full_.load(std::memory_order_relaxed)) return -1;
  const std::lock_guard<std::mutex> held(growing_);
  const uint32_t index = header().chunks;
  if (index >= max_chunks_ ||
      ::posix_fallocate(file_.get(),
                        static_cast<off_t>(kHeaderBytes + uint64_t{index} * kChunkBytes),
                        kChunkBytes) != 0) {
    full_.store(true, std::memory_order_relaxed);
    return -1;
  }
  header().chunks = index + 1;
  return static_cast<int>(index);
}

std::unique_ptr<Recorder> start_recording(const std::string& directory, Bootstrap& bootstrap,
                                          const std::string& host, bool same_host_as_pe_0,
                                          const std::vector<std::string>& waits) {
  if (directory.empty()) return nullptr;
  struct Outcome {
    uint64_t started_ns = 0;
    int32_t pid = 0;
    char error[512] = {};
  } mine;
  std::unique_ptr<Recorder> made;
  mine.started_ns = arch::clock_ns();
  mine.pid = ::getpid();
  try {
    made = std::make_unique<Recorder>(directory, bootstrap.rank(), bootstrap.size(), host, waits);
  } catch (const Error& error) {
    copy_text(mine.error, error.what());
  }
  const auto all = allgather(bootstrap, mine);
  for (std::size_t pe = 0; pe < all.size(); ++pe)
    if (all[pe].error[0] != '\0') fail(ErrorKind::init, "PE ", pe, ": ", all[pe].error);
  // Two runs of PE 0 differ in when they started or, after a reboot, in all likelihood by process.
  const uint64_t job = all.front().started_ns ^ static_cast<uint64_t>(all.front().pid) << 40;
  made->set_job(job, compare_clocks(bootstrap, same_host_as_pe_0));
  return made;
}

}  // namespace railshmem::trace
