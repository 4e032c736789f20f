// A timeline's file, one per PE: a header with the names of everything, then chunks of events. Each
// chunk belongs to one thread. The file is mapped memory, so what was recorded
// survives its process; python/railshmem/trace.py reads it.
#pragma once

#include <cstdint>

#include "kernels/shmem/trace.hpp"

namespace railshmem::trace {

constexpr uint64_t kMagic = 0x4543415254485352;  // "RSHTRACE"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kHeaderBytes = 16384;
constexpr uint32_t kChunkBytes = 65536;
// Beyond this a PE's file keeps the newest events of each thread.
constexpr uint64_t kLimitBytes = 64 << 20;

struct FileHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint32_t chunk_bytes;
  uint32_t event_bytes;
  int32_t pe;
  int32_t n_pes;
  int32_t pid;
  uint32_t chunks;         // in use; more than the file holds are a cut file
  uint64_t job;            // the same in all files of one run
  int64_t clock_ahead_ns;  // this PE's clock minus PE 0's
  uint64_t clock_error_ns;
  uint64_t overwritten;  // events that made room for newer ones
  uint64_t lost;         // events without room
  uint32_t closed;       // 0: the process ended, or has not ended yet, without closing the file
  uint32_t names_bytes;
  char host[64];
};
static_assert(sizeof(FileHeader) == 152, "the file's readers know this layout");

struct ChunkHeader {
  uint64_t sequence;  // of the writer's chunks: they are used again
  uint32_t writer;    // one thread at a time
  char track[52];     // what the thread is called
};
static_assert(sizeof(ChunkHeader) == 64, "the file's readers know this layout");

constexpr uint64_t kEventsPerChunk =
    (kChunkBytes - sizeof(ChunkHeader)) / sizeof(device::TraceEvent);
constexpr uint64_t kMaxChunks = (kLimitBytes - kHeaderBytes) / kChunkBytes;

}  // namespace railshmem::trace
