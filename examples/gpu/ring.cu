// A program of nvcc's under mpirun: each PE's kernel hands a row to its right neighbour and waits
// for the one of its left neighbour, round after round, without the host.
//
//   cmake -S . -B build/gpu -DRAILSHMEM_PYTHON=OFF && cmake --build build/gpu
//   nvcc -std=c++17 -arch=native -ccbin mpicxx -I . -I shmem/include examples/gpu/ring.cu \
//        build/gpu/librailshmem_core.a -ldl -lpthread -o build/gpu/ring
//   railshmem compile --arch sm_90 --to build/gpu/kernels
//   RAILSHMEM_DEVICE=cuda RAILSHMEM_KERNELS=build/gpu/kernels mpirun -n 2 build/gpu/ring
#include <mpi.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <railshmem/device.hpp>
#include <railshmem/shmem.hpp>

using railshmem::device::DeviceContext;

// The launcher's MPI tells who is in the job.
class MpiBootstrap : public railshmem::Bootstrap {
 public:
  int rank() const override {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
  int size() const override {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
  }
  void allgather(const void* mine, std::size_t bytes, void* all) override {
    const int count = static_cast<int>(bytes);
    MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void abort(int code, const std::string& why) override {
    std::fprintf(stderr, "%s\n", why.c_str());
    MPI_Abort(MPI_COMM_WORLD, code);
  }
};

constexpr int kFloats = 1024;
constexpr int kRounds = 100;

// One block. `inbox` has a place per round; `arrived` counts the rounds whose row has come.
__global__ void ring(const DeviceContext* ctx, float* inbox, uint64_t* arrived, const float* mine) {
  using namespace railshmem::device;
  if (!compatible(ctx)) return;
  const int right = (my_pe(ctx) + 1) % n_pes(ctx);
  for (uint64_t round = 0; round < kRounds; ++round) {
    const float* row = round == 0 ? mine : inbox + (round - 1) * kFloats;
    if (!put_signal<Scope::block>(ctx, inbox + round * kFloats, row, kFloats * sizeof(float),
                                  set_signal(arrived, round + 1), right) ||
        !wait_until<Scope::block>(ctx, arrived, Compare::greater_equal, round + 1))
      return;  // stopped: the host's next call says why
  }
  quiet<Scope::block>(ctx);
}

int main(int argc, char** argv) {
  using namespace railshmem;
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    shmem_init(std::make_shared<MpiBootstrap>());
    const int me = shmem_my_pe(), n_pes = shmem_n_pes();
    const std::size_t row_bytes = kFloats * sizeof(float);
    auto* inbox = static_cast<float*>(shmem_malloc(kRounds * row_bytes));
    auto* mine = static_cast<float*>(shmem_malloc(row_bytes));
    auto* arrived = static_cast<uint64_t*>(shmem_calloc(1, sizeof(uint64_t)));
    const std::vector<float> numbers(kFloats, static_cast<float>(me));
    cudaMemcpy(mine, numbers.data(), row_bytes, cudaMemcpyDefault);
    shmem_barrier_all();

    ring<<<1, 512>>>(default_runtime().device_context(), inbox, arrived, mine);
    const cudaError_t ended = cudaDeviceSynchronize();
    shmem_barrier_all();  // raises what stopped a kernel, here or elsewhere

    std::vector<float> last(kFloats);
    cudaMemcpy(last.data(), inbox + (kRounds - 1) * kFloats, row_bytes, cudaMemcpyDefault);
    const float from = static_cast<float>(((me - kRounds) % n_pes + n_pes) % n_pes);
    const bool right = ended == cudaSuccess && last.front() == from && last.back() == from;
    std::printf("PE %d: after %d rounds the row of PE %.0f: %s\n", me, kRounds, last.front(),
                right ? "right" : "wrong");
    status = right ? 0 : 1;
    shmem_finalize();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
