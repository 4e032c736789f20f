// The verbs provider between the devices that RAILSHMEM_TEST_VERBS names for two PEs, rail by rail:
// "rxe0_0,rxe0_1;rxe1_0,rxe1_1". scripts/test-softroce has such; elsewhere only what needs no
// device is checked.
#include <cstdlib>

#include "shmem/nic/verbs/verbs.hpp"
#include "tests/cpp/nic_conformance.hpp"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "rxe0_0,rxe0_1" of PE 0; empty: none are named.
std::string nics_of(int pe) {
  const std::string both = variable("RAILSHMEM_TEST_VERBS");
  const std::size_t middle = both.find(';');
  if (middle == std::string::npos) return "";
  return pe == 0 ? both.substr(0, middle) : both.substr(middle + 1);
}

// Errors come soon: a message without a buffer is sent again once.
VerbsSettings impatient() {
  VerbsSettings out;
  out.rnr_retries = 1;
  return out;
}

struct VerbsWire {
  static constexpr int kRounds = 300;
  static constexpr bool kIsolated = true;
  static constexpr bool kRefusesUnready = true;

  explicit VerbsWire(const VerbsSettings& settings = impatient())
      : providers{make_verbs_provider(nics_of(0), settings, {}),
                  make_verbs_provider(nics_of(1), settings, {})} {}

  static std::string absent() {
    return nics_of(0).empty() ? "RAILSHMEM_TEST_VERBS names no NICs" : "";
  }
  Provider& provider(int pe) { return *providers[static_cast<std::size_t>(pe)]; }

  std::unique_ptr<Provider> providers[2];
};

}  // namespace

TYPE_TO_STRING(VerbsWire);

NIC_CONFORMANCE(VerbsWire);

TEST_CASE("verbs: without a NIC of that name it says what there is instead") {
  const std::string why = why_no_verbs("nonesuch_*", {});
  CHECK_FALSE(why.empty());
  CHECK(error_text([] { make_verbs_provider("nonesuch_*", {}, {}); }, ErrorKind::init) == why);
}

TEST_CASE("verbs: a port is a NIC that says its network") {
  if (is_absent<VerbsWire>()) return;
  VerbsWire wire;
  CHECK(why_no_verbs(nics_of(0), {}).empty());
  REQUIRE(wire.provider(0).nics().size() == 2);
  const Nic& nic = *wire.provider(0).nics()[0];
  CHECK(nics_of(0).find(nic.name()) == 0);
  CHECK(nic.network().find('/') != std::string::npos);
  CHECK(nic.network() != wire.provider(0).nics()[1]->network());
  CHECK(nic.capabilities().atomics);
  CHECK(nic.capabilities().ordered);
  CHECK(nic.capabilities().shuts);
  CHECK_FALSE(nic.capabilities().counts);
  CHECK_FALSE(nic.capabilities().reaches_gpu);
  CHECK_FALSE(wire.provider(0).wakes());
}

TEST_CASE("verbs: settings change what a NIC says of itself") {
  if (is_absent<VerbsWire>()) return;
  VerbsSettings settings = impatient();
  settings.atomics = false;
  settings.relaxed = true;
  settings.region = 8 << 20;
  VerbsWire wire(settings);
  const Capabilities& can = wire.provider(0).nics()[0]->capabilities();
  CHECK_FALSE(can.atomics);
  CHECK_FALSE(can.ordered);
  CHECK(can.max_region == 8 << 20);
}

TEST_CASE("verbs: settings that the port cannot follow are refused by name") {
  if (is_absent<VerbsWire>()) return;
  const auto why = [](const VerbsSettings& settings) {
    return error_text([&] { make_verbs_provider(nics_of(0), settings, {}); }, ErrorKind::init);
  };
  VerbsSettings settings;
  settings.gid = 200;
  CHECK_MESSAGE(why(settings).find("gid=200") != std::string::npos, why(settings));
  settings = {};
  settings.mtu = 8192;
  CHECK_MESSAGE(why(settings).find("mtu=8192") != std::string::npos, why(settings));
}

TEST_CASE("verbs: queues beyond what the device has are refused with its limit") {
  if (is_absent<VerbsWire>()) return;
  VerbsWire wire;
  Nic& nic = *wire.provider(0).nics()[0];
  const std::string why = error_text([&] { nic.create_endpoint(1 << 16, 8); }, ErrorKind::init);
  CHECK_MESSAGE(why.find("RAILSHMEM_QUEUE_DEPTH") != std::string::npos, why);
}

TEST_CASE("verbs: many endpoints share completion queues, and give their room back") {
  if (is_absent<VerbsWire>()) return;
  VerbsWire wire;
  Nic& nic = *wire.provider(0).nics()[0];
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Endpoint>> all;
    for (int i = 0; i < 20; ++i) all.push_back(nic.create_endpoint(1024, 16));
    CHECK(all.back()->id() == 19);
  }
}

// RAILSHMEM_TEST_VERBS_LINK: the network interface of PE 0's rail 1. It stays down, so this comes
// alone and last.
TEST_CASE("verbs: a port that goes down ends its endpoints, and no other's") {
  const std::string link = variable("RAILSHMEM_TEST_VERBS_LINK");
  if (is_absent<VerbsWire>() || link.empty()) return;
  VerbsWire wire;
  End a(*wire.provider(0).nics()[1], 8, 8);
  End b(*wire.provider(1).nics()[1], 8, 8);
  End near_a(*wire.provider(0).nics()[0], 8, 8);
  End near_b(*wire.provider(1).nics()[0], 8, 8);
  a.connect(b);
  b.connect(a);
  near_a.connect(near_b);
  near_b.connect(near_a);
  const auto write = [](End& from, const End& to) {
    WorkRequest request;
    request.local = from.at(0);
    request.lkey = from.key.lkey;
    request.length = 8;
    request.remote = to.at(8);
    request.rkey = to.key.rkey;
    REQUIRE(from.endpoint->post(request));
    from.endpoint->ring_doorbell();
    Completion got;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    bool came = false;
    while (!came && std::chrono::steady_clock::now() < end) {
      from.nic.progress();
      came = from.nic.poll(&got, 1) == 1;
      sched_yield();
    }
    REQUIRE(came);
    return got.status;
  };
  CHECK(write(a, b) == Status::ok);
  CHECK(write(b, a) == Status::ok);
  REQUIRE(std::system(("ip link set " + link + " down").c_str()) == 0);
  CHECK(write(a, b) == Status::peer_unreachable);
  CHECK(write(a, b) == Status::flushed);
  CHECK(write(b, a) == Status::peer_unreachable);
  CHECK(write(near_a, near_b) == Status::ok);
}
