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

TEST_CASE("settings: every row of the table has a default that is accepted, and a meaning") {
  const Settings settings = read_settings([](const char*) { return nullptr; });
  CHECK(settings.heap_bytes == uint64_t{1} << 30);
  for (const SettingInfo& row : setting_table()) {
    CHECK(std::string(row.name).rfind("RAILSHMEM_", 0) == 0);
    CHECK(std::string(row.meaning).size() > 10);
  }
}
