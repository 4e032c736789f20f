#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "kernels/shmem/wait.hpp"
#include "tests/cpp/standin.hpp"

using namespace railshmem;
using namespace railshmem::testing;

namespace {

// A kernel that waits until the test opens the gate: its stream is busy until then.
class Gate {
 public:
  explicit Gate(gpu::Driver& driver) : driver_(driver), module_(driver.load("STANDIN")) {
    context_.timeout_ns = 60'000'000'000;
    context_.stop = &stop_;
    context_.stop_claim = &stop_.stop;
    context_.job_stop = &stop_.stop;
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { driver_.unload(module_); }

  void enqueue(gpu::Stream stream) {
    const device::DeviceContext* context = &context_;
    const void* word = &word_;
    uint32_t width = 8;
    uint32_t is_signed = 0;
    auto compare = static_cast<uint32_t>(device::Compare::equal);
    uint64_t expected = 1;
    void* arguments[] = {&context, &word, &width, &is_signed, &compare, &expected};
    gpu::Launch how;
    how.threads = 32;
    how.stream = stream;
    driver_.launch(driver_.function(module_, "rsh_wait_until"), how, arguments);
  }
  void open() { word_.store(1, std::memory_order_release); }

 private:
  gpu::Driver& driver_;
  gpu::Module module_;
  device::StopRecord stop_ = {};
  device::DeviceContext context_ = {};
  std::atomic<uint64_t> word_{0};
};

void fill_words(gpu::Driver& driver, gpu::Module module, gpu::Address at, uint64_t value,
                uint64_t count, gpu::Launch how) {
  uint32_t width = 8;
  void* arguments[] = {&at, &value, &width, &count};
  driver.launch(driver.function(module, "rsh_fill"), how, arguments);
}

}  // namespace

TEST_CASE("gpu: what the driver says of its devices") {
  const auto driver = standin({{"DEVICES", "3"}, {"MEMORY", "64M"}, {"PROCESSORS", "5"}});
  CHECK(std::string(driver->name()) == "CUDA");
  CHECK(driver->version() == "13.0");
  CHECK(driver->device_count() == 3);
  const gpu::Facts facts = driver->facts(2);
  CHECK(facts.name == "stand-in GPU");
  CHECK(facts.architecture == "sm_90");
  CHECK(facts.bus_id == "0000:12:00.0");
  CHECK(facts.memory_bytes == 64 * kMiB);
  CHECK(facts.processors == 5);
  CHECK(facts.vmm);
  CHECK(facts.cooperative);
  CHECK_FALSE(facts.fabric);
  CHECK(driver->can_access(0, 1));
  CHECK(driver->can_access(1, 1));
  CHECK_FALSE(standin({{"PEERS", "0"}})->can_access(0, 1));
  CHECK(contains(error_of([&] { driver->facts(7); }), "cuDeviceGet of 7: error 101"));
}

TEST_CASE("gpu: a process has the devices that CUDA_VISIBLE_DEVICES leaves it") {
  ::setenv("CUDA_VISIBLE_DEVICES", "2,0,nothing,1", 1);
  const auto driver = standin({{"DEVICES", "3"}});
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  REQUIRE(driver->device_count() == 2);
  CHECK(driver->facts(0).bus_id == "0000:12:00.0");
  CHECK(driver->facts(1).bus_id == "0000:10:00.0");
}

TEST_CASE("gpu: no driver, no device and a driver that is too old are said") {
  CHECK(contains(error_of([] { gpu::load_cuda("/nowhere/libcuda.so"); }),
                 "no GPU driver: /nowhere/libcuda.so"));
  CHECK(contains(error_of([] { gpu::load_cuda("libm.so.6"); }),
                 "libm.so.6 has no cuInit: this GPU driver is too old"));
  CHECK(contains(error_of([] { standin({{"DEVICES", "0"}}); }), "cuInit: error 100"));
  CHECK(error_of([] { standin({{"VERSION", "11080"}}); }) ==
        "the NVIDIA driver is of CUDA 11.8, but 12.0 is needed");
}

TEST_CASE("gpu: a thread without a device is told so") {
  const gpu::Site site = standin_site();
  std::string error;
  std::thread([&] { error = error_of([&] { site.driver->allocate(4096); }); }).join();
  CHECK(contains(error, "cuMemAlloc of 4 KiB: error 201"));
}

TEST_CASE("gpu: copies and fills arrive, between programs, devices and registered memory") {
  const gpu::Site site = standin_site();
  gpu::Driver& driver = *site.driver;
  std::vector<uint32_t> sent(50'000);
  std::iota(sent.begin(), sent.end(), 7u);
  const uint64_t bytes = sent.size() * sizeof(uint32_t);
  const gpu::Address first = driver.allocate(bytes);
  driver.use(1);
  const gpu::Address second = driver.allocate(bytes);
  CHECK(driver.device_of(reinterpret_cast<void*>(first)) == 0);
  CHECK(driver.device_of(reinterpret_cast<void*>(second + bytes - 1)) == 1);
  CHECK(driver.device_of(sent.data()) == -1);
  const gpu::Stream stream = driver.create_stream(true, true);
  driver.copy(first, reinterpret_cast<gpu::Address>(sent.data()), bytes, stream);
  driver.copy(second, first, bytes, stream);
  driver.fill(first, 0x11, bytes / 2, stream);
  driver.synchronize(stream);
  CHECK(values_at<uint32_t>(driver, second, sent.size()) == sent);
  const auto filled = values_at<uint32_t>(driver, first, sent.size());
  CHECK(filled.front() == 0x11111111);
  CHECK(filled[sent.size() / 2 - 1] == 0x11111111);
  CHECK(filled[sent.size() / 2] == sent[sent.size() / 2]);
  CHECK(contains(error_of([&] { driver.copy(second, first, bytes + 8192, nullptr); }),
                 "cuMemcpyAsync"));
  driver.destroy_stream(stream);
  driver.free(second);
  driver.use(0);
  driver.free(first);
  CHECK(contains(error_of([&] { driver.free(first); }), "cuMemFree: error 1"));
}

TEST_CASE("gpu: memory ends, and comes back when it is freed") {
  const gpu::Site site = standin_site({{"MEMORY", "8M"}});
  gpu::Driver& driver = *site.driver;
  uint64_t free = 0;
  uint64_t total = 0;
  const gpu::Address at = driver.allocate(6 * kMiB);
  driver.free_and_total(&free, &total);
  CHECK(free == 2 * kMiB);
  CHECK(total == 8 * kMiB);
  CHECK(error_of([&] { driver.create(0, 4 * kMiB, gpu::Sharing::none); }) ==
        "cuMemCreate of 4 MiB on device 0: error 2 (out of memory)");
  driver.free(at);
  driver.release(driver.create(0, 8 * kMiB, gpu::Sharing::none));
  driver.free_and_total(&free, &total);
  CHECK(free == 8 * kMiB);
}

TEST_CASE("gpu: memory is reached where it is mapped, and nowhere else") {
  const gpu::Site site = standin_site();
  gpu::Driver& driver = *site.driver;
  const uint64_t bytes = 2 * driver.granularity(0, gpu::Sharing::none);
  const gpu::Address at = driver.reserve(2 * bytes, 0, 0);
  const gpu::Allocation allocation = driver.create(0, bytes, gpu::Sharing::none);
  CHECK(contains(error_of([&] { driver.fill(at, 1, bytes, nullptr); }), "cuMemsetD8Async"));
  driver.map(at, bytes, allocation, 0);
  CHECK(contains(error_of([&] { driver.map(at, bytes, allocation, 0); }), "cuMemMap"));
  driver.map(at + bytes, bytes, allocation, 1);  // the same again
  put_at<uint64_t>(driver, at + 64, {1, 2, 3});
  CHECK(values_at<uint64_t>(driver, at + bytes + 64, 3) == std::vector<uint64_t>{1, 2, 3});
  driver.fill(at, 0, bytes, nullptr);
  CHECK(values_at<uint64_t>(driver, at + bytes + 64, 3) == std::vector<uint64_t>{0, 0, 0});
  CHECK(contains(error_of([&] { driver.free_reserved(at, 2 * bytes); }), "cuMemAddressFree"));
  driver.unmap(at + bytes, bytes);
  CHECK(contains(error_of([&] { values_at<char>(driver, at + bytes - 8, 16); }), "cuMemcpyAsync"));
  CHECK(contains(error_of([&] { driver.unmap(at + bytes, bytes); }), "cuMemUnmap"));
  driver.release(allocation);  // it lives on where it is mapped
  put_at<uint64_t>(driver, at, {4});
  CHECK(values_at<uint64_t>(driver, at, 1).front() == 4);
  driver.unmap(at, bytes);
  CHECK(contains(error_of([&] { driver.release(allocation); }), "cuMemRelease"));
  driver.free_reserved(at, 2 * bytes);
}

TEST_CASE("gpu: host memory is registered once") {
  const gpu::Site site = standin_site();
  alignas(4096) static char page[8192];
  site.driver->register_host(page, sizeof page);
  CHECK(site.driver->device_of(page) == -1);
  CHECK(contains(error_of([&] { site.driver->register_host(page + 4096, 4096); }), "error 712"));
  site.driver->unregister_host(page);
  CHECK(contains(error_of([&] { site.driver->unregister_host(page); }), "error 713"));
}

TEST_CASE("gpu: streams run by themselves and in order, and wait for each other's events") {
  const gpu::Site site = standin_site();
  gpu::Driver& driver = *site.driver;
  const gpu::Module module = driver.load("STANDIN");
  const gpu::Address at = driver.allocate(4096);
  driver.fill(at, 0, 4096, nullptr);
  driver.synchronize(nullptr);
  const gpu::Stream first = driver.create_stream(true, false);
  const gpu::Stream second = driver.create_stream(true, true);
  const gpu::Event event = driver.create_event();
  CHECK(driver.ended(event));
  CHECK_FALSE(driver.capturing(first));
  Gate gate(driver);
  gate.enqueue(first);
  gpu::Launch how;
  how.threads = 128;
  how.stream = first;
  fill_words(driver, module, at, 5, 512, how);
  driver.record(event, first);
  driver.wait(second, event);
  how.stream = second;
  fill_words(driver, module, at, 6, 256, how);
  CHECK_FALSE(driver.idle(first));
  CHECK_FALSE(driver.idle(second));
  CHECK_FALSE(driver.ended(event));
  CHECK(values_at<uint64_t>(driver, at, 1).front() == 0);  // the default stream goes on
  gate.open();
  driver.synchronize(second);
  CHECK(driver.ended(event));
  CHECK(driver.idle(first));
  const auto words = values_at<uint64_t>(driver, at, 512);
  CHECK(words[255] == 6);
  CHECK(words[256] == 5);
  driver.destroy_event(event);
  driver.destroy_stream(first);
  driver.destroy_stream(second);
  CHECK(contains(error_of([&] { driver.synchronize(first); }), "cuStreamSynchronize: error 400"));
  CHECK(contains(error_of([&] { driver.ended(event); }), "cuEventQuery: error 400"));
  driver.unload(module);
  driver.free(at);
}

TEST_CASE("gpu: a stream that is not apart keeps the default stream's order, both ways") {
  const gpu::Site site = standin_site();
  gpu::Driver& driver = *site.driver;
  const gpu::Address at = driver.allocate(8);
  const gpu::Stream stream = driver.create_stream(false, true);
  Gate first(driver);
  first.enqueue(nullptr);
  driver.fill(at, 1, 8, stream);
  CHECK_FALSE(driver.idle(stream));
  first.open();
  driver.synchronize(stream);
  CHECK(driver.idle(nullptr));
  Gate second(driver);
  second.enqueue(stream);
  driver.fill(at, 2, 8, nullptr);
  CHECK_FALSE(driver.idle(nullptr));
  second.open();
  CHECK(values_at<uint8_t>(driver, at, 1).front() == 2);
  driver.destroy_stream(stream);
  driver.free(at);
}

TEST_CASE("gpu: a kernel starts while another waits, although it is launched for the first time") {
  const gpu::Site site = standin_site();
  gpu::Driver& driver = *site.driver;
  const gpu::Module module = driver.load("STANDIN");
  const gpu::Address at = driver.allocate(64);
  const gpu::Stream stream = driver.create_stream(true, false);
  Gate gate(driver);
  gate.enqueue(stream);
  fill_words(driver, module, at, 3, 8, {});
  driver.synchronize(nullptr);
  CHECK_FALSE(driver.idle(stream));
  gate.open();
  driver.synchronize(stream);
  driver.destroy_stream(stream);
  driver.unload(module);
  driver.free(at);
}

TEST_CASE("gpu: kernels are found by name, take their arguments, and run as a grid") {
  const gpu::Site site = standin_site({{"PROCESSORS", "4"}});
  gpu::Driver& driver = *site.driver;
  CHECK(contains(error_of([&] { driver.load("// source text"); }), "cuModuleLoadData: error 200"));
  const gpu::Module module = driver.load("STANDIN");
  CHECK(error_of([&] { driver.function(module, "rsh_nothing"); }) ==
        "cuModuleGetFunction of rsh_nothing: error 500 (named symbol not found)");
  const gpu::Function fill = driver.function(module, "rsh_fill");
  CHECK(driver.blocks_per_processor(fill, 256, 0) == 1);
  const gpu::Address at = driver.allocate(8000 * 8);
  for (const bool cooperative : {false, true}) {
    gpu::Launch how;
    how.blocks = 4;
    how.threads = 64;
    how.cooperative = cooperative;
    fill_words(driver, module, at, cooperative ? 17 : 16, 8000, how);
    CHECK(values_at<uint64_t>(driver, at, 8000) ==
          std::vector<uint64_t>(8000, cooperative ? 17 : 16));
  }
  gpu::Launch how;
  how.blocks = 5;
  how.threads = 64;
  how.cooperative = true;
  CHECK(contains(error_of([&] { fill_words(driver, module, at, 1, 1, how); }),
                 "cuLaunchCooperativeKernel with 5 blocks of 64: error 720"));
  how = {};
  how.threads = 2048;
  CHECK(contains(error_of([&] { fill_words(driver, module, at, 1, 1, how); }),
                 "cuLaunchKernel with 1 blocks of 2048: error 1"));
  how.threads = 64;
  how.shared_bytes = 100'000;
  CHECK(contains(error_of([&] { fill_words(driver, module, at, 1, 1, how); }), "error 1 "));
  driver.allow_shared(fill, 100'000);
  CHECK(contains(error_of([&] { driver.allow_shared(fill, 1'000'000); }), "cuFuncSetAttribute"));
  driver.unload(module);
  CHECK(contains(error_of([&] { driver.function(module, "rsh_fill"); }), "error 400"));
  driver.free(at);
}

TEST_CASE("gpu: the calls of a driver can be read afterwards") {
  const CallLog log;
  const gpu::Site site = standin_site({{"LOG", log.path()}});
  log.clear();
  site.driver->release(site.driver->create(1, 4 * kMiB, gpu::Sharing::descriptor));
  const std::vector<std::string> lines = log.lines();
  REQUIRE(lines.size() >= 2);
  CHECK(lines[lines.size() - 2] == "cuMemCreate(4194304, 1, 1, 1) = 0");
  CHECK(lines.back() == "cuMemRelease() = 0");
}
