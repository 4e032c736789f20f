// AMD's GPUs: what is asked of the HIP runtime, in which order, with which arguments.
#include <doctest/doctest.h>

#include <algorithm>

#include "shmem/memory/segment.hpp"
#include "tests/cpp/forked_pes.hpp"
#include "tests/cpp/standin.hpp"

using namespace railshmem;
using namespace railshmem::testing;

namespace {

gpu::Site hip_site(const std::map<std::string, std::string>& settings = {}) {
  set_standin(settings);
  const gpu::Site site{gpu::load_hip(STANDIN_HIP), 0};
  site.driver->use(site.device);
  return site;
}

// The calls since the log was cleared, without looks at what a device is.
std::vector<std::string> calls(const CallLog& log) {
  std::vector<std::string> out;
  for (const std::string& line : log.lines())
    if (!contains(line, "hipDeviceGet") && !contains(line, "hipGetDevice") &&
        !contains(line, "hipDeviceTotalMem"))
      out.push_back(line);
  log.clear();
  return out;
}

}  // namespace

TEST_CASE("hip: what the runtime says of its devices") {
  const gpu::Site site = hip_site({{"DEVICES", "3"}, {"MEMORY", "64M"}, {"PROCESSORS", "5"}});
  gpu::Driver& driver = *site.driver;
  CHECK(std::string(driver.name()) == "HIP");
  CHECK(driver.version() == "7.2");
  CHECK(driver.device_count() == 3);
  const gpu::Facts facts = driver.facts(1);
  CHECK(facts.architecture == "gfx942");
  CHECK(facts.bus_id == "0000:11:00.0");
  CHECK(facts.memory_bytes == 64 * kMiB);
  CHECK(facts.processors == 5);
  CHECK(facts.vmm);
  CHECK(facts.cooperative);
  CHECK_FALSE(facts.fabric);  // a version that does not know the question has none
  CHECK(driver.can_access(0, 2));
}

TEST_CASE("hip: a runtime without uncached memory that can be shared is refused") {
  CHECK(error_of([] { hip_site({{"VERSION", "70150000"}}); }) ==
        "the HIP runtime is of version 7.1, but 7.2 is needed: older ones have no uncached memory "
        "that other processes can map");
  CHECK(contains(error_of([] { hip_site({{"DEVICES", "0"}}); }), "hipInit: error 100"));
  CHECK(contains(error_of([] { gpu::load_hip("libm.so.6"); }), "has no hipInit"));
}

TEST_CASE("hip: the calls that make a heap, share it by a descriptor, and end it") {
  const CallLog log;
  const gpu::Site site = hip_site({{"LOG", log.path()}});
  log.clear();
  {
    const Segment segment = Segment::create("test", 4096, site, 3 * kMiB);
    const std::vector<std::string> made = calls(log);
    CHECK(made == std::vector<std::string>{
                      "hipSetDevice(0) = 0",
                      "hipMemGetAllocationGranularity() = 0",
                      "hipMemGetInfo() = 0",
                      "hipMemCreate(4194304, 0, 1, uncached) = 0",
                      "hipMemAddressReserve(4194304, 0, anywhere) = 0",
                      "hipMemMap(4194304, 0) = 0",
                      "hipMemSetAccess(4194304, 0) = 0",
                      "hipMemExportToShareableHandle(1) = 0",
                      "hipMemsetD8Async(0, 4194304, 0) = 0",
                      "hipStreamSynchronize(0) = 0",
                      "hipHostRegister(8192, 3) = 0",
                      "hipHostGetDevicePointer() = 0",
                  });
    const gpu::Site other{site.driver, 1};
    {
      const Segment seen = Segment::import(segment.handle(), &other);
      const std::vector<std::string> mapped = calls(log);
      CHECK(mapped == std::vector<std::string>{
                          "hipSetDevice(1) = 0",
                          "hipMemImportFromShareableHandle(1) = 0",
                          "hipMemAddressReserve(4194304, 0, anywhere) = 0",
                          "hipMemMap(4194304, 0) = 0",
                          "hipMemSetAccess(4194304, 1) = 0",
                          "hipHostRegister(8192, 3) = 0",
                          "hipHostGetDevicePointer() = 0",
                      });
    }
    CHECK(calls(log) == std::vector<std::string>{
                            "hipHostUnregister() = 0",
                            "hipSetDevice(1) = 0",
                            "hipMemUnmap(4194304) = 0",
                            "hipMemRelease() = 0",
                            "hipMemAddressFree(4194304) = 0",
                        });
  }
}

TEST_CASE("hip: fabric handles where the runtime has them, else descriptors") {
  for (const char* fabric : {"1", "claimed"}) {
    CAPTURE(fabric);
    const CallLog log;
    const gpu::Site site = hip_site({{"LOG", log.path()}, {"FABRIC", fabric}});
    const Segment segment = Segment::create("test", 4096, site, 2 * kMiB);
    const auto made = log.lines();
    const bool works = std::string(fabric) == "1";
    CHECK(std::count(made.begin(), made.end(), "hipMemCreate(2097152, 0, 8, uncached) = 0") ==
          (works ? 2 : 0));  // a probe, and the heap
    CHECK(std::count(made.begin(), made.end(), "hipMemCreate(2097152, 0, 8, uncached) = 801") ==
          (works ? 0 : 1));
    CHECK(std::count(made.begin(), made.end(), "hipMemCreate(2097152, 0, 1, uncached) = 0") ==
          (works ? 0 : 1));
    const Segment seen = Segment::import(segment.handle(), &site);
    CHECK(seen.bytes() == segment.bytes());
  }
}

TEST_CASE("hip: PEs map each other's heaps") {
  CHECK(run_forked_pes(kForkedPes, [&](const std::shared_ptr<Bootstrap>& bootstrap) {
          const gpu::Site site = hip_site();
          const Segment own = Segment::create("test", 4096, site, 2 * kMiB);
          const SegmentHandle handle = own.handle();
          std::vector<SegmentHandle> handles(static_cast<std::size_t>(bootstrap->size()));
          bootstrap->allgather(&handle, sizeof handle, handles.data());
          const SegmentHandle& next =
              handles[static_cast<std::size_t>((bootstrap->rank() + 1) % bootstrap->size())];
          const Segment peer = Segment::import(next, &site);
          const auto me = static_cast<uint64_t>(bootstrap->rank()) + 1;
          put_at<uint64_t>(*site.driver,
                           reinterpret_cast<gpu::Address>(peer.data() + peer.host_bytes()), {me});
          bootstrap->barrier();
          const uint64_t seen =
              values_at<uint64_t>(*site.driver,
                                  reinterpret_cast<gpu::Address>(own.data() + own.host_bytes()), 1)
                  .front();
          const auto before = static_cast<uint64_t>(
              (bootstrap->rank() + bootstrap->size() - 1) % bootstrap->size() + 1);
          if (seen != before) fail(ErrorKind::init, "PE ", before - 1, " wrote ", seen);
          bootstrap->barrier();
        }) == "");
}

TEST_CASE("hip: streams, events, modules and launches") {
  const CallLog log;
  const gpu::Site site = hip_site({{"LOG", log.path()}});
  gpu::Driver& driver = *site.driver;
  const gpu::Address at = driver.allocate(4096);
  CHECK(driver.device_of(reinterpret_cast<void*>(at)) == 0);
  log.clear();
  const gpu::Stream stream = driver.create_stream(true, true);
  const gpu::Stream other = driver.create_stream(false, false);
  const gpu::Event event = driver.create_event();
  const gpu::Module module = driver.load("STANDIN");
  const gpu::Function fill = driver.function(module, "rsh_fill");
  CHECK(driver.blocks_per_processor(fill, 256, 0) == 1);
  gpu::Address where = at;
  uint64_t value = 7;
  uint32_t width = 8;
  uint64_t count = 512;
  void* arguments[] = {&where, &value, &width, &count, nullptr};
  gpu::Launch how;
  how.blocks = 3;
  how.threads = 256;
  how.stream = stream;
  driver.launch(fill, how, arguments);
  driver.record(event, stream);
  driver.wait(other, event);
  how.cooperative = true;
  how.stream = other;
  value = 8;
  driver.launch(fill, how, arguments);
  driver.synchronize(other);
  CHECK(driver.ended(event));
  CHECK(driver.idle(stream));
  CHECK_FALSE(driver.capturing(stream));
  const std::string s = text(stream);
  const std::string o = text(other);
  const std::string e = text(event);
  const std::string m = text(module);
  CHECK(calls(log) == std::vector<std::string>{
                          "hipStreamCreateWithPriority(1, -1) = 0",
                          "hipStreamCreateWithPriority(0, 1) = 0",
                          "hipEventCreateWithFlags(2) = 0",
                          "hipModuleLoadData() = 0",
                          "hipModuleGetFunction(" + m + ", rsh_fill) = 0",
                          "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(256, 0) = 0",
                          "hipModuleLaunchKernel(3, 256, 0, " + s + ") = 0",
                          "hipEventRecord(" + e + ", " + s + ") = 0",
                          "hipStreamWaitEvent(" + o + ", " + e + ") = 0",
                          "hipModuleLaunchCooperativeKernel(3, 256, 0, " + o + ") = 0",
                          "hipStreamSynchronize(" + o + ") = 0",
                          "hipEventQuery(" + e + ") = 0",
                          "hipStreamQuery(" + s + ") = 0",
                          "hipStreamIsCapturing(" + s + ") = 0",
                      });
  CHECK(values_at<uint64_t>(driver, at, 512) == std::vector<uint64_t>(512, 8));
  driver.allow_shared(fill, 64 * 1024);
  CHECK(error_of([&] { driver.allow_shared(fill, 65 * 1024); }) ==
        "66560 bytes of shared memory, and a block has 65536 at most");
  driver.unload(module);
  driver.destroy_event(event);
  driver.destroy_stream(stream);
  driver.destroy_stream(other);
  driver.free(at);
}
