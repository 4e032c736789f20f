// One PE's timeline: RAILSHMEM_TRACE=DIR makes one, DIR/pe-NNNN.trace. Threads record into chunks
// of their own, without locks or allocation; a full file keeps the newest events of each thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/shmem/trace.hpp"
#include "shmem/base/file_descriptor.hpp"
#include "shmem/trace/clock.hpp"
#include "shmem/trace/file_layout.hpp"
#include "shmem/trace/per_thread.hpp"

namespace railshmem::trace {

class Recorder {
 public:
  // Creates `directory` where it is missing, and replaces the file of an earlier run. At most
  // `max_chunks` chunks are used. `waits` are the names of device::Waiting. Throws Error(init)
  // naming the path.
  Recorder(const std::string& directory, int pe, int n_pes, const std::string& host,
           const std::vector<std::string>& waits, uint64_t max_chunks = kMaxChunks);
  // No thread records any more.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // What joins the files of a run: `job` is the same on all PEs.
  void set_job(uint64_t job, const ClockOffset& clock);

  // For DeviceContext::trace; lives as long as the recorder.
  const device::Trace* hook() const { return &hook_; }
  const std::string& path() const { return path_; }

 private:
  // Where one thread writes: its chunks in order of use, and the next event in the latest.
  struct Writer {
    std::string track;
    uint32_t number;
    std::vector<uint32_t> chunks = {};
    uint64_t sequence = 0;
    device::TraceEvent* next = nullptr;
    device::TraceEvent* end = nullptr;
  };

  static void record(void* self, const device::TraceEvent& event);
  bool take_chunk(Writer& writer);
  int add_chunk();
  FileHeader& header() { return *reinterpret_cast<FileHeader*>(base_); }

  const std::string path_;
  const uint64_t max_chunks_;
  FileDescriptor file_;
  char* base_ = nullptr;  // the file as far as it may grow
  std::mutex growing_;
  std::atomic<bool> full_{false};
  std::atomic<uint32_t> n_writers_{0};
  PerThread<Writer> writers_;
  device::Trace hook_;
};

// Collective: this PE's recorder. Null where `directory` is empty. A PE that cannot write is named
// on all of them, by Error(init).
std::unique_ptr<Recorder> start_recording(const std::string& directory, Bootstrap& bootstrap,
                                          const std::string& host, bool same_host_as_pe_0,
                                          const std::vector<std::string>& waits);

}  // namespace railshmem::trace
