// What every NIC must do, done by libfabric's over the loopback. Left out is what its transports do
// in another way, for which test_libfabric.cpp has checks of its own: immediates of WRITEs,
// messages larger than their buffer, a peer's endpoint that has gone while its NIC is there, and
// wrong keys, which a tcp answers by closing the connection.
#include <optional>

#include "shmem/nic/libfabric/libfabric.hpp"
#include "tests/cpp/nic_conformance.hpp"

namespace {

struct Loopback {
  static std::string absent() { return {}; }
  Provider& provider(int pe) { return *providers[pe]; }
  static constexpr int kRounds = 300;
  static constexpr bool kIsolated = false;
  static constexpr bool kRefusesUnready = false;

  std::unique_ptr<Provider> providers[2] = {make_libfabric_provider("lo", {}),
                                            make_libfabric_provider("lo", {})};
};

}  // namespace

TEST_CASE_TEMPLATE_INVOKE(nic_facts, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_lengths, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_inline, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_nothing, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_receive_laps, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_early_receives, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_full_queue, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_many, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_order, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_read_write, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_shut, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_shut_posted, Loopback);
TEST_CASE_TEMPLATE_INVOKE(nic_refuses, Loopback);
