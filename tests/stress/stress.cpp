// Random operations on random jobs, compared with one thread that does the same: every transport,
// contexts, teams, collectives, tiny rings and queues, NICs that delay, reorder and die.
//
//   railshmem_stress [--seconds S] [--seed N] [--jobs N]
//
// A failure prints the seed of its job: --seed N --jobs 1 runs it again.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/cpp/thread_pes.hpp"
#include "tests/stress/play.hpp"

using namespace railshmem;
using namespace railshmem::stress;

namespace {

constexpr int kRounds = 40;

void run_job(uint64_t seed) {
  const Job job = draw_job(seed);
  const testing::Environment environment(job.settings.begin(), job.settings.end());
  const bool dies = environment.at("RAILSHMEM_FAULTS").find("rail=") != std::string::npos;
  try {
    testing::run_pes(job.n_pes, environment,
                     [&](Runtime& runtime) { play(runtime, seed, kRounds, !dies); });
  } catch (const Error& error) {
    std::fprintf(stderr, "seed %llu: %s\n  %s\n", static_cast<unsigned long long>(seed),
                 job.describe().c_str(), error.what());
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 60;
  uint64_t seed = 1;
  uint64_t jobs = UINT64_MAX;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0)
      seconds = std::atof(argv[i + 1]);
    else if (std::strcmp(argv[i], "--seed") == 0)
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (std::strcmp(argv[i], "--jobs") == 0)
      jobs = std::strtoull(argv[i + 1], nullptr, 10);
    else
      return std::fprintf(stderr, "unknown option %s\n", argv[i]), 2;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  uint64_t done = 0;
  try {
    for (; done < jobs && passed() < seconds; ++done) run_job(seed + done);
  } catch (const Error&) {
    return 1;
  }
  std::printf("%llu jobs of %d rounds from seed %llu in %.0f s, all as one thread computes\n",
              static_cast<unsigned long long>(done), kRounds, static_cast<unsigned long long>(seed),
              passed());
  return 0;
}
