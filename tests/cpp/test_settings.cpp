#include <doctest/doctest.h>

#include "shmem/base/error.hpp"
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
