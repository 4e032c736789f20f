// Teams and collectives on every shape of job, against results computed by one thread.
#include <doctest/doctest.h>

#include <cstring>
#include <future>
#include <numeric>
#include <random>

#include "shmem/api/collective_call.hpp"
#include "shmem/api/collectives.hpp"
#include "shmem/api/meetings.hpp"
#include "shmem/api/teams.hpp"
#include "tests/cpp/thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;

namespace {

template <class T>
T* symmetric(Runtime& runtime, std::size_t count) {
  return static_cast<T*>(runtime.malloc(count * sizeof(T)));
}

// What member `member` of a job contributes at `index`.
uint64_t given(int world_pe, std::size_t index, uint64_t round) {
  return (static_cast<uint64_t>(world_pe) + 1) * 1000003 + index * 31 + round * 7919;
}

void expect(const char* what, std::size_t index, uint64_t found, uint64_t wanted) {
  if (found != wanted)
    fail(ErrorKind::argument, what, ": element ", index, " is ", found, ", not ", wanted);
}

// From what fits one exchange to what is cut into pieces between nodes.
const std::size_t kCounts[] = {0, 1, 7, 128, 129, 1000, 40000, 70001};

void check_all(Runtime& runtime, Team& team, std::size_t count, uint64_t round) {
  const auto n = static_cast<std::size_t>(team.n_pes());
  const auto me = static_cast<std::size_t>(team.my_pe());
  const auto& pes = team.pes();
  auto* source = symmetric<uint64_t>(runtime, 70001 * 6);
  auto* dest = symmetric<uint64_t>(runtime, 70001 * 6);
  const int own = pes[me];
  for (std::size_t i = 0; i < count * n; ++i) source[i] = given(own, i, round);

  for (int root = 0; root < team.n_pes(); ++root) {
    std::fill(dest, dest + count, 0);
    broadcast(runtime, team, dest, source, count * 8, root);
    for (std::size_t i = 0; i < count; ++i)
      expect("broadcast", i, dest[i], given(pes[static_cast<std::size_t>(root)], i, round));
  }

  fcollect(runtime, team, dest, source, count * 8);
  for (std::size_t i = 0; i < count * n; ++i)
    expect("fcollect", i, dest[i], given(pes[i / count], i % count, round));

  const std::size_t mine = (count + me) / (me + 1);  // another length on every member
  collect(runtime, team, dest, 70001 * 6 * 8, source, mine * 8);
  std::size_t at = 0;
  for (std::size_t member = 0; member < n; ++member)
    for (std::size_t i = 0; i < (count + member) / (member + 1); ++i, ++at)
      expect("collect", at, dest[at], given(pes[member], i, round));

  alltoall(runtime, team, dest, source, count * 8);
  for (std::size_t member = 0; member < n; ++member)
    for (std::size_t i = 0; i < count; ++i)
      expect("alltoall", i, dest[member * count + i], given(pes[member], me * count + i, round));

  reduce(runtime, team, dest, source, count, ElementType::uint64, ReduceOp::sum);
  for (std::size_t i = 0; i < count; ++i) {
    uint64_t wanted = 0;
    for (const int pe : pes) wanted += given(pe, i, round);
    expect("sum", i, dest[i], wanted);
  }
  reduce(runtime, team, source, source, count, ElementType::uint64, ReduceOp::max);
  for (std::size_t i = 0; i < count; ++i)
    expect("max in place", i, source[i],
           given(*std::max_element(pes.begin(), pes.end()), i, round));
  runtime.sync_all();
  runtime.free(dest);
  runtime.free(source);
}

}  // namespace

TEST_CASE("collectives give what one thread computes, on every shape and size") {
  for (const Shape& shape : all_shapes())
    for (const int n_pes : {2, 3, 4}) {
      if (std::string(shape.nodes) == "4" && n_pes < 4) continue;
      CAPTURE(shape.name);
      CAPTURE(n_pes);
      CHECK_NOTHROW(run_pes(n_pes, environment_of(shape), [](Runtime& runtime) {
        uint64_t round = 0;
        for (const std::size_t count : kCounts)
          check_all(runtime, *runtime.world(), count, ++round);
      }));
    }
}

TEST_CASE("collectives work where nodes have different numbers of PEs") {
  for (const int n_pes : {5, 6}) {
    Environment environment = environment_of({"", "4", "ordered=off"});
    environment["RAILSHMEM_HEAP_SIZE"] = "24M";
    CAPTURE(n_pes);
    CHECK_NOTHROW(run_pes(n_pes, environment, [](Runtime& runtime) {
      uint64_t round = 0;
      for (const std::size_t count : {std::size_t{3}, std::size_t{999}, std::size_t{70001}})
        check_all(runtime, *runtime.world(), count, ++round);
    }));
  }
}

TEST_CASE("teams of more PEs than meet in one step work, too") {
  Environment environment = environment_of({"", "3", ""});
  environment["RAILSHMEM_HEAP_SIZE"] = "12M";
  CHECK_NOTHROW(run_pes(18, environment, [](Runtime& runtime) {
    Team& team = *runtime.world();
    auto* word = symmetric<uint64_t>(runtime, 1);
    auto* all = symmetric<uint64_t>(runtime, 40);
    *word = static_cast<uint64_t>(runtime.my_pe()) * 3;
    fcollect(runtime, team, all, word, 8);
    for (std::size_t i = 0; i < 18; ++i) expect("fcollect", i, all[i], i * 3);
    collect(runtime, team, all, 320, word, runtime.my_pe() % 2 == 0 ? 8 : 0);
    for (std::size_t i = 0; i < 9; ++i) expect("collect", i, all[i], i * 6);
    reduce(runtime, team, all, word, 1, ElementType::uint64, ReduceOp::sum);
    expect("sum", 0, all[0], 17 * 18 / 2 * 3);
    broadcast(runtime, team, all, word, 8, 11);
    expect("broadcast", 0, all[0], 33);
    const auto odd = runtime.teams().split_strided(runtime.meetings(), team, 1, 2, 9, {});
    if ((odd != nullptr) != (runtime.my_pe() % 2 == 1)) fail(ErrorKind::argument, "wrong members");
    if (odd) {
      reduce(runtime, *odd, all, word, 1, ElementType::uint64, ReduceOp::min);
      expect("min", 0, all[0], 3);
    }
    runtime.sync_all();
    const auto axes = runtime.teams().split_2d(runtime.meetings(), team, 17, {}, {});
    reduce(runtime, *axes.x, all, word, 1, ElementType::uint64, ReduceOp::max);
    expect("row", 0, all[0], runtime.my_pe() < 17 ? 48 : 51);
    reduce(runtime, *axes.y, all, word, 1, ElementType::uint64, ReduceOp::max);
    expect("column", 0, all[0],
           runtime.my_pe() % 17 == 0 ? 51 : static_cast<uint64_t>(runtime.my_pe()) * 3);
  }));
}

TEST_CASE("teams split, translate, and reuse their slots without meeting old words") {
  for (const Shape& shape : all_shapes()) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(4, environment_of(shape), [](Runtime& runtime) {
      Teams& teams = runtime.teams();
      Meetings& meetings = runtime.meetings();
      std::mt19937 random(11);  // the same on every PE
      for (uint64_t round = 0; round < 60; ++round) {
        const int start = static_cast<int>(random() % 4);
        const int stride = static_cast<int>(random() % 7) - 3;
        int size = 1;
        while (stride != 0 && start + stride * size >= 0 && start + stride * size < 4) ++size;
        const auto team = teams.split_strided(meetings, *runtime.world(), start, stride, size, {});
        const auto axes = teams.split_2d(meetings, *runtime.world(), 1 + random() % 4, {}, {});
        if (team) {
          if (team->slot() != axes.x->slot() - 1) fail(ErrorKind::argument, "slots leak");
          for (int i = 0; i < size; ++i)
            expect("world_pe", 0, static_cast<uint64_t>(team->world_pe("t", i)),
                   static_cast<uint64_t>(start + stride * i));
          expect("index_of", 0, static_cast<uint64_t>(team->index_of(runtime.my_pe())),
                 static_cast<uint64_t>(team->my_pe()));
        }
        // Collectives of three teams, one after another, without any barrier of the world.
        if (team) team_sync(runtime, *team);
        team_sync(runtime, *axes.x);
        team_sync(runtime, *axes.y);
        if (team) teams.destroy(meetings, *team);
        teams.destroy(meetings, *axes.y);
        teams.destroy(meetings, *axes.x);
      }
    }));
  }
}

TEST_CASE("members that call different collectives all raise, telling who called what") {
  for (const Shape& shape : {all_shapes()[0], all_shapes()[1]}) {
    CAPTURE(shape.name);
    CHECK_NOTHROW(run_pes(3, environment_of(shape), [](Runtime& runtime) {
      auto* source = symmetric<uint64_t>(runtime, 8);
      auto* dest = symmetric<uint64_t>(runtime, 64);
      for (int wrong = 0; wrong < 3; ++wrong) {
        const std::size_t bytes = runtime.my_pe() == wrong ? 16 : 64;
        std::string told;
        try {
          fcollect(runtime, *runtime.world(), dest, source, bytes);
        } catch (const Error& error) {
          told = error.what();
        }
        if (told.find(" 16)") == std::string::npos || told.find(" 64)") == std::string::npos)
          fail(ErrorKind::argument, "told '", told, "'");
      }
      std::string told;
      try {
        if (runtime.my_pe() == 1)
          runtime.barrier_all();
        else
          alltoall(runtime, *runtime.world(), dest, source, 8);
      } catch (const Error& error) {
        told = error.what();
      }
      if (told.find("barrier") == std::string::npos) fail(ErrorKind::argument, "told ", told);
      // Nothing moved, so the team goes on.
      fcollect(runtime, *runtime.world(), dest, source, 8);
    }));
  }
}

TEST_CASE("an impossible collective is refused before anything moves") {
  run_pes(2, environment_of(all_shapes()[0]), [](Runtime& runtime) {
    auto* data = symmetric<uint64_t>(runtime, 8);
    Team& team = *runtime.world();
    uint64_t outside[8] = {};
    CHECK_THROWS_WITH_AS(fcollect(runtime, team, data, outside, 8), doctest::Contains("source"),
                         Error);
    CHECK_THROWS_WITH_AS(broadcast(runtime, team, data, data + 4, 8, 2),
                         doctest::Contains("PE 2 does not exist"), Error);
    CHECK_THROWS_WITH_AS(alltoall(runtime, team, data, data + 1, 16), doctest::Contains("overlap"),
                         Error);
    CHECK_THROWS_WITH_AS(
        reduce(runtime, team, data, data + 4, 2, ElementType::float32, ReduceOp::bit_and),
        doctest::Contains("shmem_and_reduce: not defined for float32"), Error);
    CHECK_THROWS_WITH_AS(
        reduce(runtime, team, data, data + 1, 2, ElementType::uint64, ReduceOp::sum),
        doctest::Contains("overlap"), Error);
    CHECK_THROWS_WITH_AS(collect(runtime, team, data, 16, data + 4, 16),
                         doctest::Contains("dest has only 16"), Error);
    CHECK_THROWS_WITH_AS(runtime.teams().destroy(runtime.meetings(), team),
                         doctest::Contains("predefined"), Error);
  });
}

TEST_CASE("a collective whose member does not come says so, and a half-done one ends its team") {
  Environment environment = environment_of(all_shapes()[1]);
  environment["RAILSHMEM_TIMEOUT_S"] = "0.3";
  std::promise<void> gave_up;
  std::promise<void> done;
  run_pes(2, environment, [&](Runtime& runtime) {
    auto* data = symmetric<uint64_t>(runtime, 80000);
    const auto pair =
        runtime.teams().split_strided(runtime.meetings(), *runtime.world(), 0, 1, 2, {});
    if (runtime.my_pe() == 1) {
      gave_up.get_future().wait();
      fcollect(runtime, *pair, data + 30000, data, 80000);
      return done.get_future().wait();
    }
    // Not even begun: the team is as it was, and the meeting goes on where it was left.
    CHECK_THROWS_WITH_AS(fcollect(runtime, *pair, data + 30000, data, 80000),
                         doctest::Contains("peer PE 1"), Error);
    CHECK_FALSE(pair->broken);
    gave_up.set_value();
    fcollect(runtime, *pair, data + 30000, data, 80000);
    // A call that PE 1 knows nothing of: its data does not come.
    {
      CollectiveCall call(runtime, *pair, "test");
      call.start_moving();
      CHECK_THROWS_WITH_AS(call.wait_told(0, 1), doctest::Contains("collective"), Error);
    }
    CHECK_THROWS_WITH_AS(team_sync(runtime, *pair), doctest::Contains("ended half way"), Error);
    done.set_value();
  });
}

TEST_CASE("sums of 16-bit floats and complex numbers are what numpy would say") {
  run_pes(2, environment_of(all_shapes()[1]), [](Runtime& runtime) {
    auto* half = symmetric<uint16_t>(runtime, 2);
    half[0] = runtime.my_pe() == 0 ? 0x3c00 : 0x4000;  // 1, 2
    reduce(runtime, *runtime.world(), half, half, 1, ElementType::float16, ReduceOp::sum);
    CHECK(half[0] == 0x4200);
    half[0] = runtime.my_pe() == 0 ? 0x3f80 : 0x4040;  // 1, 3 as bfloat16
    reduce(runtime, *runtime.world(), half, half, 1, ElementType::bfloat16, ReduceOp::prod);
    CHECK(half[0] == 0x4040);
    auto* z = symmetric<std::complex<double>>(runtime, 1);
    *z = runtime.my_pe() == 0 ? std::complex<double>(1, 2) : std::complex<double>(3, -1);
    reduce(runtime, *runtime.world(), z, z, 1, ElementType::complex128, ReduceOp::prod);
    CHECK(*z == std::complex<double>(5, 5));
  });
}
