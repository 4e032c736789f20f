// What every NIC must do, done by libfabric's over the loopback. Left out is what its transports do
// in another way, for which test_libfabric.cpp has checks of its own: immediates of WRITEs,
// messages larger than their buffer, a peer's endpoint that has gone while its NIC is there, and
// wrong keys, which a tcp answers by closing the connection.
#include <optional>

#include "nic_conformance.hpp"
#include "shmem/nic/libfabric/libfabric.hpp"

namespace {

template <bool manual>
struct Loopback {
  Loopback() {
    LibfabricSettings settings;
    settings.manual_progress = manual;
    for (auto& one : providers) one = make_libfabric_provider("lo", settings);
  }
  static std::string absent() { return {}; }
  Provider& provider(int pe) { return *providers[pe]; }
  static constexpr int kRounds = 300;
  static constexpr bool kIsolated = false;
  static constexpr bool kRefusesUnready = false;

  std::unique_ptr<Provider> providers[2];
};
using LibfabricAuto = Loopback<false>;
using LibfabricManual = Loopback<true>;

}  // namespace

#define BOTH LibfabricAuto, LibfabricManual
TEST_CASE_TEMPLATE_INVOKE(nic_facts, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_lengths, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_inline, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_nothing, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_receive_laps, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_early_receives, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_full_queue, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_many, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_order, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_read_write, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_shut, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_shut_posted, BOTH);
TEST_CASE_TEMPLATE_INVOKE(nic_refuses, BOTH);
