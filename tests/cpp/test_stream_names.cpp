// The C++ names of what a stream carries out: on CPUs, where they are the host's calls, and on GPUs
// that are not there.
#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "shmem/include/railshmem/shmem.hpp"
#include "tests/cpp/forked_pes.hpp"
#include "tests/cpp/standin.hpp"

using namespace railshmem;

namespace {

// Of one block, and of several with a launch for the signal.
constexpr std::size_t kCounts[] = {5, 50'000};

void expect(const std::vector<int64_t>& found, int64_t wanted, const char* what) {
  for (const int64_t one : found)
    if (one != wanted) fail(ErrorKind::argument, what, ": ", one, ", not ", wanted);
}

// A copy of symmetric memory, wherever it is.
std::vector<int64_t> seen(const int64_t* symmetric, std::size_t count) {
  std::vector<int64_t> out(count);
  shmem_get(out.data(), symmetric, count, shmem_my_pe());
  return out;
}

void every_name(std::size_t count, void* stream) {
  const int me = shmem_my_pe(), n = shmem_n_pes();
  const int right = (me + 1) % n, left = (me + n - 1) % n;
  const std::size_t bytes = count * sizeof(int64_t);
  auto* inbox = static_cast<int64_t*>(shmem_calloc(count, sizeof(int64_t)));
  auto* mine = static_cast<int64_t*>(shmem_calloc(count, sizeof(int64_t)));
  auto* copy = static_cast<int64_t*>(shmem_calloc(count, sizeof(int64_t)));
  auto* signal = static_cast<uint64_t*>(shmem_calloc(1, sizeof(uint64_t)));
  shmem_put(mine, std::vector<int64_t>(count, me).data(), count, me);
  shmem_quiet();

  shmemx_putmem_signal_on_stream(inbox, mine, bytes, signal, 3, SHMEM_SIGNAL_SET, right, stream);
  shmemx_signal_wait_until_on_stream(signal, SHMEM_CMP_EQ, 3, stream);
  shmemx_signal_op_on_stream(signal, 4, SHMEM_SIGNAL_ADD, right, stream);
  shmemx_wait_until_on_stream(signal, SHMEM_CMP_GE, 7, stream);
  shmemx_getmem_on_stream(copy, inbox, bytes, me, stream);
  shmemx_barrier_all_on_stream(stream);
  if (stream != nullptr) default_runtime().gpu()->driver().synchronize(stream);
  expect(seen(inbox, count), left, "put with signal");
  expect(seen(copy, count), left, "get");

  shmem_barrier_all();
  shmemx_putmem_on_stream(inbox, copy, bytes, right, stream);
  shmemx_fence_on_stream(stream);
  shmemx_quiet_on_stream(stream);
  shmemx_sync_all_on_stream(stream);
  if (stream != nullptr) default_runtime().gpu()->driver().synchronize(stream);
  expect(seen(inbox, count), (left + n - 1) % n, "put");
  shmem_barrier_all();
  for (void* block :
       {static_cast<void*>(signal), static_cast<void*>(mine), static_cast<void*>(inbox)})
    shmem_free(block);
}

// A folder with kernels for the stand-in, as 'railshmem compile --to' leaves it.
class KernelFolder {
 public:
  KernelFolder() : path_(text("/tmp/railshmem-kernels-", ::getpid())) {
    std::filesystem::create_directory(path_);
    std::ofstream(path_ + "/core.sm_90") << "STANDIN";
  }
  KernelFolder(const KernelFolder&) = delete;
  KernelFolder& operator=(const KernelFolder&) = delete;
  ~KernelFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace

TEST_CASE("names of streams: on CPUs they are the host's calls") {
  for (const std::string nodes : {"0", "2"}) {
    const std::string failures = testing::run_forked_pes(testing::kForkedPes, [&](const auto& all) {
      if (all->size() == 1 && nodes == "2") return;
      shmem_init(all, testing::settings_from({{"RAILSHMEM_NODES", nodes}}));
      for (const std::size_t count : kCounts) every_name(count, nullptr);
      try {
        shmemx_quiet_on_stream(all.get());
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::argument) return shmem_finalize();
      }
      fail(ErrorKind::argument, "a stream was taken where there is none");
    });
    CHECK(failures == "");
  }
}

TEST_CASE("names of streams: a GPU's stream carries them out in its order") {
  const KernelFolder kernels;
  testing::set_standin({});
  const std::string failures = testing::run_forked_pes(testing::kForkedPes, [&](const auto& all) {
    shmem_init(all, testing::settings_from({{"RAILSHMEM_DEVICE", "cuda"},
                                            {"RAILSHMEM_GPU_DRIVER", STANDIN_CUDA},
                                            {"RAILSHMEM_KERNELS", kernels.path()}}));
    GpuSide& gpu = *default_runtime().gpu();
    gpu.use();
    void* stream = gpu.driver().create_stream(true, false);
    for (const std::size_t count : kCounts)
      for (void* on : {static_cast<void*>(nullptr), stream}) every_name(count, on);
    gpu.driver().destroy_stream(stream);
    shmem_finalize();
  });
  CHECK(failures == "");
}
