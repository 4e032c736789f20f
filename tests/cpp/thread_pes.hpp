// Runs a body as many PEs of one process, each a thread with a runtime of its own.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shmem/api/context.hpp"
#include "shmem/api/runtime.hpp"
#include "shmem/api/waits.hpp"
#include "shmem/bootstrap/threads.hpp"

namespace railshmem::testing {

using Environment = std::map<std::string, std::string>;

inline Settings settings_from(const Environment& environment) {
  return read_settings([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    if (found != environment.end()) return found->second.c_str();
    const std::string key = name;
    if (key == "RAILSHMEM_HEAP_SIZE") return "16M";
    if (key == "RAILSHMEM_TIMEOUT_S") return "60";
    if (key == "RAILSHMEM_DEVICE") return "cpu";  // also where there is a GPU
    return nullptr;
  });
}

// Calls body(runtime) on every PE and rethrows the first exception that a PE let out. Then the
// others' waits are ended too, and no runtime goes before all threads have ended: peers may still
// be moving data.
template <class Body>
void run_pes(int n_pes, const Environment& environment, const Body& body,
             const KernelSource& kernels = nullptr) {
  const Settings settings = settings_from(environment);
  const auto job = std::make_shared<ThreadJob>(n_pes, settings.timeout_s);
  const auto count = static_cast<std::size_t>(n_pes);
  std::vector<std::unique_ptr<Runtime>> runtimes(count);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (std::size_t pe = 0; pe < count; ++pe)
    threads.emplace_back([&, pe] {
      try {
        auto made = std::make_unique<Runtime>(
            std::make_shared<ThreadBootstrap>(job, static_cast<int>(pe)), settings, kernels);
        Runtime& runtime = *made;
        {
          const std::lock_guard<std::mutex> held(mutex);
          runtimes[pe] = std::move(made);
        }
        body(runtime);
        runtime.finalize();
      } catch (...) {
        const std::lock_guard<std::mutex> held(mutex);
        if (!first) first = std::current_exception();
        job->abort(static_cast<int>(pe), "an exception left its body");
        for (const auto& runtime : runtimes)
          if (runtime) runtime->abort_waits();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// The shapes every transport test runs on: one node, two nodes, a node per PE.
struct Shape {
  const char* name;
  const char* nodes;
  const char* emulated;
};
inline std::vector<Shape> all_shapes() {
  return {
      {"one node", "0", ""},
      {"2 nodes", "2", ""},
      {"2 nodes, no atomics", "2", "atomics=off"},
      {"2 nodes, unordered", "2", "ordered=off"},
      {"2 nodes, unordered, no atomics", "2", "ordered=off,atomics=off"},
      {"4 nodes", "4", ""},
      {"4 nodes, unordered", "4", "ordered=off"},
      {"4 nodes, no atomics", "4", "atomics=off"},
  };
}
inline Environment environment_of(const Shape& shape) {
  return {{"RAILSHMEM_NODES", shape.nodes},
          {"RAILSHMEM_RAILS", "2"},
          {"RAILSHMEM_EMULATED", shape.emulated}};
}

}  // namespace railshmem::testing
