// The benchmarks' operations by NVSHMEM, as a program beside the job: `nvshmem_rival N_PES
// HEAP_BYTES` starts N_PES processes, a GPU each. It answers "ready SECONDS", then each line
// "OPERATION BYTES BLOCKS COUNT" with the GPU's seconds for COUNT operations, until its input ends.
#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kThreads = 1024, kWarp = 32;

void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

// ---- kernels -----------------------------------------------------------------------------------

struct Share {
  std::size_t first, bytes;
};
__device__ Share my_share(std::size_t bytes) {
  const std::size_t share = (bytes / gridDim.x + 127) / 128 * 128;
  const std::size_t first = share * blockIdx.x < bytes ? share * blockIdx.x : bytes;
  return {first, bytes - first < share ? bytes - first : share};
}

__global__ void put(char* dest, const char* source, std::size_t bytes, int pe, int count,
                    bool quiet_each) {
  const Share mine = my_share(bytes);
  for (int i = 0; i < count; ++i) {
    nvshmemx_putmem_nbi_block(dest + mine.first, source + mine.first, mine.bytes, pe);
    if (!quiet_each) continue;
    __syncthreads();
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncthreads();
  }
}
__global__ void get(char* dest, const char* source, std::size_t bytes, int pe, int count) {
  const Share mine = my_share(bytes);
  for (int i = 0; i < count; ++i)
    nvshmemx_getmem_block(dest + mine.first, source + mine.first, mine.bytes, pe);
}
__global__ void p_quiet(uint64_t* word, int pe, int count) {
  for (int i = 0; i < count; ++i) {
    nvshmem_uint64_p(word, i, pe);
    nvshmem_quiet();
  }
}
__global__ void fetch_add(uint64_t* word, int pe, int count) {
  for (int i = 0; i < count; ++i) nvshmem_uint64_atomic_fetch_add(word, 1, pe);
}
__global__ void ping(char* dest, const char* source, std::size_t bytes, uint64_t* signal,
                     uint64_t start, int pe, int count, bool first) {
  const auto send = [&](uint64_t value) {
    if (bytes > 0)
      nvshmemx_putmem_signal_nbi_warp(dest, source, bytes, signal, value, NVSHMEM_SIGNAL_SET, pe);
    else if (threadIdx.x == 0)
      nvshmemx_signal_op(signal, value, NVSHMEM_SIGNAL_SET, pe);
  };
  for (uint64_t value = start + 1; value <= start + count; ++value) {
    if (first) send(value);
    if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, value);
    __syncwarp();
    if (!first) send(value);
  }
}
__global__ void barrier(int count) {
  for (int i = 0; i < count; ++i) nvshmem_barrier_all();
}

// ---- one process -------------------------------------------------------------------------------

// What the processes tell each other before NVSHMEM can.
struct Meeting {
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  std::atomic<bool> ready{false};
};

class Pe {
 public:
  Pe(int me, int n_pes, std::size_t heap_bytes, Meeting& meeting) : me_(me), n_pes_(n_pes) {
    int devices = 0;
    check(cudaGetDeviceCount(&devices));
    check(cudaSetDevice(me % devices));
    if (me == 0) {
      if (nvshmemx_get_uniqueid(&meeting.id) != 0) throw std::runtime_error("no unique id");
      meeting.ready = true;
    }
    // The first process may have failed before it had an id.
    for (int waited_ms = 0; !meeting.ready; ++waited_ms) {
      if (waited_ms == 30000) throw std::runtime_error("no unique id within 30 s");
      usleep(1000);
    }
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    nvshmemx_set_attr_uniqueid_args(me, n_pes, &meeting.id, &attributes);
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0)
      throw std::runtime_error("nvshmemx_init_attr failed");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check(cudaEventCreate(&start_));
    check(cudaEventCreate(&end_));
    half_ = heap_bytes / 2 / 256 * 256;
    dest_ = static_cast<char*>(nvshmem_malloc(half_));
    source_ = static_cast<char*>(nvshmem_malloc(half_));
    signal_ = static_cast<uint64_t*>(nvshmem_calloc(16, sizeof(uint64_t)));
    if (dest_ == nullptr || source_ == nullptr || signal_ == nullptr)
      throw std::runtime_error("nvshmem_malloc found no room");
    nvshmem_barrier_all();
  }

  // Collective.
  double seconds(const std::string& operation, std::size_t bytes, int blocks, int count) {
    if (bytes > half_) throw std::runtime_error("more bytes than the heap has");
    const int other = me_ == 0 ? 1 % n_pes_ : 0;
    const bool plays = me_ == 0 || me_ == 1;
    const bool first = me_ == 0;
    const auto run = [&] {
      if (operation == "put" && first)
        put<<<blocks, kThreads, 0, stream_>>>(dest_, source_, bytes, other, count, false);
      else if (operation == "put_quiet" && first)
        put<<<blocks, kThreads, 0, stream_>>>(dest_, source_, bytes, other, count, true);
      else if (operation == "get" && first)
        get<<<blocks, kThreads, 0, stream_>>>(dest_, source_, bytes, other, count);
      else if (operation == "p_quiet" && first)
        p_quiet<<<1, 1, 0, stream_>>>(signal_ + 8, other, count);
      else if (operation == "fetch_add" && first)
        fetch_add<<<1, 1, 0, stream_>>>(signal_ + 8, other, count);
      else if ((operation == "signal" || operation == "put_signal") && plays)
        ping<<<1, kWarp, 0, stream_>>>(dest_, source_, operation == "signal" ? 0 : bytes, signal_,
                                       trips_, other, count, first);
      else if (operation == "barrier")
        barrier<<<1, 1, 0, stream_>>>(count);
      else if (operation == "alltoall")
        for (int i = 0; i < count; ++i)
          nvshmemx_alltoallmem_on_stream(NVSHMEM_TEAM_WORLD, dest_, source_, bytes, stream_);
      check(cudaGetLastError());
    };
    nvshmem_barrier_all();
    check(cudaEventRecord(start_, stream_));
    run();
    check(cudaEventRecord(end_, stream_));
    check(cudaStreamSynchronize(stream_));
    trips_ += static_cast<uint64_t>(count);
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start_, end_));
    return milliseconds / 1e3;
  }

 private:
  const int me_;
  const int n_pes_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
  std::size_t half_ = 0;
  char* dest_ = nullptr;
  char* source_ = nullptr;
  uint64_t* signal_ = nullptr;
  uint64_t trips_ = 0;
};

// Everything ends with the process; NVSHMEM's own finalize is not waited for.
int serve(int me, int n_pes, std::size_t heap_bytes, Meeting& meeting, int commands) {
  try {
    const auto begin = std::chrono::steady_clock::now();
    Pe pe(me, n_pes, heap_bytes, meeting);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (me == 0) std::printf("ready %.6f\n", taken.count());
    std::fflush(stdout);
    FILE* lines = ::fdopen(commands, "r");
    char operation[32];
    std::size_t bytes;
    int blocks, count;
    while (std::fscanf(lines, "%31s %zu %d %d", operation, &bytes, &blocks, &count) == 4) {
      const double seconds = pe.seconds(operation, bytes, blocks, count);
      if (me == 0) std::printf("%.9f\n", seconds);
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "PE %d: %s\n", me, error.what());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int n_pes = std::atoi(argv[1]);
  const std::size_t heap_bytes = std::strtoull(argv[2], nullptr, 10);
  void* shared =
      ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  auto* meeting = new (shared) Meeting;
  std::vector<int> pipes;
  for (int me = 0; me < n_pes; ++me) {
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[1]);
      for (const int other : pipes) ::close(other);
      if (me != 0) ::close(1);
      std::_Exit(serve(me, n_pes, heap_bytes, *meeting, ends[0]));
    }
    ::close(ends[0]);
    pipes.push_back(ends[1]);
  }
  ::close(1);  // whoever reads hears of process 0's end
  ::signal(SIGPIPE, SIG_IGN);
  char line[256];
  while (::fgets(line, sizeof line, stdin) != nullptr)
    for (const int pipe : pipes)
      if (::write(pipe, line, std::strlen(line)) < 0) return 1;
  return 0;
}
