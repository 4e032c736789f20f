#include <doctest/doctest.h>

#include <signal.h>
#include <sys/mman.h>

#include "shmem/memory/segment.hpp"
#include "tests/cpp/forked_pes.hpp"
#include "tests/cpp/standin.hpp"

using namespace railshmem;
using namespace railshmem::testing;

namespace {

constexpr uint64_t kHostBytes = 3 * 4096;

gpu::Address device_part(const Segment& segment) {
  return reinterpret_cast<gpu::Address>(segment.data() + segment.host_bytes());
}

}  // namespace

TEST_CASE("gpu segment: one range of addresses, host words below the GPU's memory") {
  const gpu::Site site = standin_site();
  const Segment segment = Segment::create("test", kHostBytes + 5, site, 3 * kMiB);
  CHECK(segment.host_bytes() == kHostBytes + 2 * 4096);  // whole pages, and one for the handle
  CHECK(segment.bytes() == segment.host_bytes() + 4 * kMiB);
  CHECK(segment.handle().bytes == segment.bytes());
  CHECK(site.driver->device_of(segment.data()) == -1);
  CHECK(site.driver->device_of(segment.data() + segment.host_bytes()) == 0);
  std::memset(segment.data(), 3, kHostBytes);
  CHECK(values_at<uint64_t>(*site.driver, device_part(segment), 4) == std::vector<uint64_t>(4, 0));
  put_at<uint64_t>(*site.driver, device_part(segment) + 4 * kMiB - 8, {42});
  // Across the border, as the library's engines see it.
  const auto border = values_at<char>(*site.driver, device_part(segment) - 2, 4);
  CHECK(border[2] == 0);
}

TEST_CASE("gpu segment: CPU code that touches the GPU's memory dies, as on a machine with a GPU") {
  const int key = ::pkey_alloc(0, 0);
  if (key < 0) return;  // this processor cannot tell
  ::pkey_free(key);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    const gpu::Site site = standin_site();
    const Segment segment = Segment::create("test", kHostBytes, site, 2 * kMiB);
    segment.data()[0] = 1;
    ::_exit(segment.data()[segment.host_bytes()]);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
}

TEST_CASE("gpu segment: another mapping in the same process has the same words") {
  const gpu::Site site = standin_site();
  const Segment own = Segment::create("test", kHostBytes, site, 2 * kMiB);
  const gpu::Site other{site.driver, 1};
  const Segment seen = Segment::import(own.handle(), &other);
  CHECK(seen.data() != own.data());
  CHECK(seen.bytes() == own.bytes());
  own.data()[100] = 'x';
  CHECK(seen.data()[100] == 'x');
  put_at<uint64_t>(*site.driver, device_part(own) + 4096, {11, 12});
  CHECK(values_at<uint64_t>(*site.driver, device_part(seen) + 4096, 2) ==
        std::vector<uint64_t>{11, 12});
  CHECK(contains(error_of([&] { Segment::import(own.handle(), nullptr); }),
                 "has its heap on a GPU and this one has none"));
}

TEST_CASE("gpu segment: PEs map each other's, by descriptors and by fabric handles") {
  for (const char* fabric : {"0", "1", "claimed"}) {
    CAPTURE(fabric);
    CHECK(run_forked_pes(kForkedPes, [&](const std::shared_ptr<Bootstrap>& bootstrap) {
            gpu::Site site{standin({{"FABRIC", fabric}}), bootstrap->rank() % 2};
            site.driver->use(site.device);
            const auto me = static_cast<uint64_t>(bootstrap->rank());
            const auto n_pes = static_cast<std::size_t>(bootstrap->size());
            {
              const Segment own = Segment::create("test", kHostBytes, site, 4 * kMiB);
              const SegmentHandle handle = own.handle();
              std::vector<SegmentHandle> handles(n_pes);
              bootstrap->allgather(&handle, sizeof handle, handles.data());
              std::vector<Segment> peers;
              for (const SegmentHandle& peer : handles)
                peers.push_back(Segment::import(peer, &site));
              for (const Segment& peer : peers)
                put_at<uint64_t>(*site.driver, device_part(peer) + 8 * me, {me + 1});
              bootstrap->barrier();
              const auto words = values_at<uint64_t>(*site.driver, device_part(own), n_pes);
              for (std::size_t pe = 0; pe < n_pes; ++pe)
                if (words[pe] != pe + 1) fail(ErrorKind::init, "PE ", pe, " wrote ", words[pe]);
              bootstrap->barrier();
            }
            uint64_t free = 0;
            uint64_t total = 0;
            site.driver->free_and_total(&free, &total);
            if (free != total) fail(ErrorKind::init, bytes_text(total - free), " leaked");
          }) == "");
  }
}

TEST_CASE("gpu segment: the addresses below are found although the driver's choice is crowded") {
  for (const char* crowded : {"0", "1"}) {
    const gpu::Site site = standin_site({{"CROWDED", crowded}});
    const SplitAddresses addresses(site, 64 * kMiB, 5 * kMiB);
    CHECK(addresses.device() % kMiB == 0);
    CHECK(reinterpret_cast<gpu::Address>(addresses.host()) == addresses.device() - 5 * kMiB);
    // Held: nothing else comes to lie there.
    void* const taken = ::mmap(addresses.host(), 4096, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(taken != addresses.host());
    if (taken != MAP_FAILED) ::munmap(taken, 4096);
  }
}

TEST_CASE("gpu segment: a card that is too small is named with its sizes") {
  const gpu::Site site = standin_site({{"MEMORY", "64M"}});
  const Segment first = Segment::create("test", kHostBytes, site, 40 * kMiB);
  const std::string error = error_of([&] { Segment::create("test", kHostBytes, site, 32 * kMiB); });
  CHECK(contains(error,
                 "no memory for a heap of 32 MiB on GPU 0, which has 24 MiB free of 64 MiB; lower "
                 "RAILSHMEM_HEAP_SIZE or start fewer PEs per GPU: cuMemCreate of 32 MiB"));
}

TEST_CASE("gpu segment: fabric handles are used where one can really be made") {
  std::string why;
  CHECK_FALSE(fabric_works(standin_site(), &why));
  CHECK(why == "the driver offers none");
  CHECK_FALSE(fabric_works(standin_site({{"FABRIC", "claimed"}}), &why));
  CHECK(contains(why, "cuMemCreate of 2 MiB on device 0: error 800 (operation not permitted)"));
  CHECK(fabric_works(standin_site({{"FABRIC", "1"}}), &why));
}

TEST_CASE("gpu segment: an owner that is gone is an error that says who") {
  const gpu::Site site = standin_site();
  SegmentHandle gone;
  {
    const Segment segment = Segment::create("test", kHostBytes, site, 2 * kMiB);
    gone = segment.handle();
  }
  CHECK(contains(error_of([&] { Segment::import(gone, &site); }), "cannot open /proc/"));
}
