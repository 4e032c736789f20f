#include <doctest/doctest.h>

#include "shmem/base/error.hpp"
#include "shmem/nic/selection.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using railshmem::testing::settings_from;

namespace {

std::string refusal(const testing::Environment& environment) {
  try {
    settings_from(environment);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::init ? error.what() : "wrong kind of error";
  }
  return "accepted";
}

bool names(const std::string& what, const char* part) {
  return what.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("settings: sizes take the usual suffixes") {
  CHECK(parse_bytes("4096") == 4096);
  CHECK(parse_bytes("64K") == 65536);
  CHECK(parse_bytes("1.5G") == 1610612736);
  CHECK(parse_bytes("2GiB") == 2147483648u);
  CHECK(parse_bytes("1mb") == 1048576);
  for (const char* bad : {"", "G", "12X", "-1", "1e30", "nan"})
    CHECK_THROWS_AS(parse_bytes(bad), Error);
}

TEST_CASE("settings: a bad value names the variable, the value and what is allowed") {
  CHECK(names(refusal({{"RAILSHMEM_HEAP_SIZE", "lots"}}), "RAILSHMEM_HEAP_SIZE=lots"));
  CHECK(names(refusal({{"RAILSHMEM_TIMEOUT_S", "0"}}), "RAILSHMEM_TIMEOUT_S=0"));
  CHECK(names(refusal({{"RAILSHMEM_TIMEOUT_S", "soon"}}), "soon"));
  CHECK(names(refusal({{"RAILSHMEM_NODES", "-2"}}), "RAILSHMEM_NODES=-2"));
  CHECK(names(refusal({{"RAILSHMEM_RAILS", "17"}}), "from 0 to 16"));
  CHECK(names(refusal({{"RAILSHMEM_RING", "100"}}), "power of two"));
  CHECK(names(refusal({{"RAILSHMEM_EMULATED", "atomics=perhaps"}}), "atomics=perhaps"));
  CHECK(names(refusal({{"RAILSHMEM_EMULATED", "speed=on"}}), "unknown part 'speed=on'"));
  CHECK(names(refusal({{"RAILSHMEM_PROVIDER", "tcp"}}), "RAILSHMEM_PROVIDER=tcp: expected auto"));
  CHECK(names(refusal({{"RAILSHMEM_VERBS", "gid=first"}}), "RAILSHMEM_VERBS: gid=first"));
  CHECK(names(refusal({{"RAILSHMEM_VERBS", "mtu=1500"}}), "256, 512, 1024, 2048 or 4096"));
  CHECK(names(refusal({{"RAILSHMEM_VERBS", "retry=8"}}), "from 0 to 7"));
  CHECK(names(refusal({{"RAILSHMEM_VERBS", "gids=3"}}), "known are gid, tc, sl, mtu, timeout"));
  CHECK(names(refusal({{"RAILSHMEM_LIBFABRIC", "progress=never"}}), "progress=never"));
}

TEST_CASE("settings: emulation switches, and the standard's name of the heap size") {
  const Settings settings =
      settings_from({{"RAILSHMEM_EMULATED", "atomics=off,ordered=off,isolated=off"},
                     {"RAILSHMEM_HEAP_SIZE", "2M"},
                     {"SHMEM_SYMMETRIC_SIZE", "3M"}});
  CHECK_FALSE(settings.emulated.atomics);
  CHECK_FALSE(settings.emulated.ordered);
  CHECK_FALSE(settings.emulated.isolated);
  CHECK(settings.heap_bytes == 2 << 20);
  const Settings standard = read_settings([](const char* name) {
    return std::string(name) == "SHMEM_SYMMETRIC_SIZE" ? "3M" : nullptr;
  });
  CHECK(standard.heap_bytes == 3 << 20);
}

TEST_CASE("settings: faults are read part by part") {
  const FaultSettings all =
      parse_faults("pe=2,lose=0.25,delay=0.01:200us,reorder=on,fail=read@17:retry,rail=1@0.5s");
  CHECK(all.pe == 2);
  CHECK(all.lose == 0.25);
  CHECK(all.delay == 0.01);
  CHECK(all.delay_ns == 200000);
  CHECK(all.reorder);
  CHECK(all.fail_at == 17);
  CHECK(all.fail_operation == FaultSettings::Operation::read);
  CHECK(all.fail_answer == FaultSettings::Answer::retry);
  CHECK(all.rail == 1);
  CHECK(all.rail_after == 0);
  CHECK(all.rail_time_ns == 500000000);
  CHECK(parse_faults("lose=@4,rail=0@9").lose_at == 4);
  CHECK(parse_faults("lose=@4,rail=0@9").rail_after == 9);
  CHECK_FALSE(parse_faults("").any());
}

TEST_CASE("settings: a fault that is not understood is refused, not left out") {
  for (const char* bad :
       {"lose", "lose=2", "lose=@0", "lose=x", "delay=0.1", "delay=0.1:5", "delay=0.1:5h",
        "reorder=maybe", "fail=read", "fail=read@0", "fail=jump@1", "fail=read@1:often", "rail=1",
        "rail=-1@3", "rail=1@", "rail=1@2m", "pe=all", "lost=0.1"}) {
    CAPTURE(bad);
    const std::string what = refusal({{"RAILSHMEM_FAULTS", bad}});
    CHECK_MESSAGE(names(what, bad), what);
    CHECK_MESSAGE(names(what, "RAILSHMEM_FAULTS"), what);
  }
}

TEST_CASE("settings: every row of the table has a default that is accepted, and a meaning") {
  const Settings settings = read_settings([](const char*) { return nullptr; });
  CHECK(settings.heap_bytes == uint64_t{1} << 30);
  for (const SettingInfo& row : setting_table()) {
    CHECK(std::string(row.name).rfind("RAILSHMEM_", 0) == 0);
    CHECK(std::string(row.meaning).size() > 10);
  }
}

TEST_CASE("settings: of verbs and libfabric NICs") {
  const Settings settings =
      settings_from({{"RAILSHMEM_VERBS",
                      "gid=3,tc=106,sl=2,mtu=2048,timeout=18,retry=5,rnr=6,relaxed=on,"
                      "atomics=off,region=1G"},
                     {"RAILSHMEM_LIBFABRIC", "fabric=tcp;ofi_rxm,progress=manual"},
                     {"RAILSHMEM_PROVIDER", "verbs"}});
  CHECK(settings.provider == ProviderKind::verbs);
  CHECK(settings.verbs.gid == 3);
  CHECK(settings.verbs.traffic_class == 106);
  CHECK(settings.verbs.service_level == 2);
  CHECK(settings.verbs.mtu == 2048);
  CHECK(settings.verbs.timeout == 18);
  CHECK(settings.verbs.retries == 5);
  CHECK(settings.verbs.rnr_retries == 6);
  CHECK(settings.verbs.relaxed);
  CHECK_FALSE(settings.verbs.atomics);
  CHECK(settings.verbs.region == uint64_t{1} << 30);
  CHECK(settings.libfabric.fabric == "tcp;ofi_rxm");
  CHECK(settings.libfabric.manual_progress);
  CHECK(settings_from({}).verbs.gid == -1);  // the defaults, as the table shows them
  CHECK(settings_from({}).libfabric.fabric.empty());
}

TEST_CASE("settings: NICs are chosen by name, by pattern, or all but some") {
  const auto takes = [](const char* setting, const std::vector<std::string>& names_of_nic) {
    return nic::Selection(setting).takes(names_of_nic);
  };
  CHECK(takes("", {"mlx5_0"}));
  CHECK(takes("mlx5_0", {"mlx5_0", "mlx5_0:1", "eth2"}));
  CHECK(takes("mlx5_0:1,mlx5_1", {"mlx5_0", "mlx5_0:1"}));
  CHECK_FALSE(takes("mlx5_0:1", {"mlx5_0", "mlx5_0:2"}));
  CHECK(takes("eth*", {"mlx5_0", "eth2"}));
  CHECK_FALSE(takes("^docker*,eth?", {"eth2"}));
  CHECK(takes("^docker*,eth?", {"eth12"}));
  for (const char* bad : {"a,,b", "a,^b", ",", "^"})
    CHECK_THROWS_WITH_AS(nic::Selection{bad}, doctest::Contains("RAILSHMEM_NICS="), Error);
}
