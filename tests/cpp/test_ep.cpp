// Expert parallelism between PEs that are threads: the protocol under sanitizers.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>

#include "ep_round.hpp"
#include "kernels/ep/convert.hpp"
#include "thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;

namespace {

ep::Config small_config(int n_pes) {
  ep::Config config;
  config.hidden = 20;
  config.experts = 3 * n_pes;
  config.topk = 5;
  config.max_tokens = 9;
  config.dtype = ep::Type::fp32;
  return config;
}

ep::Config by_expert(ep::Config config, int64_t alignment) {
  config.layout = ep::Layout::expert_major;
  config.alignment = alignment;
  return config;
}

ep::Config by_slot(ep::Config config) {
  config.layout = ep::Layout::slots;
  return config;
}

std::vector<ep::Config> in_all_layouts(const ep::Config& config) {
  return {config, by_expert(config, 1), by_expert(config, 4), by_slot(config)};
}

// What a test varies beside the configuration.
struct Plan {
  int rounds = 12;
  bool tokens_in_heap = false;
  bool own_arrays = false;  // dispatch delivers into the caller's
  int late_pe = -1;         // takes its time at random
  int uncombined = 5;       // every so many rounds nobody combines
  int again = 4;            // every so many rounds the routing serves for other tokens, too
};

// One PE's part in a plan; counts the wrong values.
class Player {
 public:
  Player(Runtime& runtime, const ep::Config& config, const Plan& plan)
      : runtime_(runtime),
        config_(config),
        plan_(plan),
        pe_(runtime.my_pe()),
        exchange_(std::shared_ptr<Runtime>(&runtime, [](Runtime*) {}), config),
        random_(static_cast<unsigned>(pe_)) {
    const auto bytes = static_cast<std::size_t>(config.max_tokens) * config.token_bytes();
    heap_tokens_ = runtime.malloc(bytes);
    const auto rows = static_cast<std::size_t>(config.received(runtime.n_pes()));
    tokens_.resize(rows * static_cast<std::size_t>(config.hidden));
    weights_.resize(rows * static_cast<std::size_t>(config.routing_columns()));
    indices_.resize(weights_.size());
  }

  int play() {
    for (int number = 0; number < plan_.rounds; ++number) {
      EpRound round(config_, runtime_.n_pes(), number);
      const ep::Handle handle = dispatch(round, nullptr);
      if (number % plan_.again == plan_.again - 1) {
        round.shift = 5;
        combine(round, dispatch(round, &handle), number);
      } else {
        combine(round, handle, number);
      }
    }
    runtime_.free(heap_tokens_);
    exchange_.free();
    return wrong_;
  }

 private:
  void be_late() {
    if (pe_ == plan_.late_pe)
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 2000));
  }

  ep::Outputs outputs() {
    ep::Outputs out;
    if (!plan_.own_arrays) return out;
    const int64_t rows = config_.received(runtime_.n_pes()), columns = config_.routing_columns();
    out.tokens = {tokens_.data(), rows, config_.hidden, ep::Type::fp32};
    out.weights = {weights_.data(), rows, columns, ep::Type::fp32};
    out.indices = {indices_.data(), rows, columns, ep::Type::int64};
    return out;
  }

  ep::Handle dispatch(const EpRound& round, const ep::Handle* known) {
    const EpArrays arrays(round, config_, pe_);
    ep::Batch batch = arrays.batch(config_);
    if (plan_.tokens_in_heap) {
      if (batch.tokens.bytes() > 0)
        std::memcpy(heap_tokens_, arrays.tokens.data(), batch.tokens.bytes());
      batch.tokens.data = heap_tokens_;
    }
    be_late();
    got_ = known ? exchange_.dispatch(batch.tokens, {}, *known, outputs())
                 : exchange_.dispatch(batch, outputs());
    if (plan_.tokens_in_heap)  // it may change now
      std::memset(heap_tokens_, 0x7f, static_cast<std::size_t>(batch.tokens.bytes()));
    wrong_ += wrong_arrays(round);
    return got_.handle;
  }

  int wrong_arrays(const EpRound& round) const {
    const int n_pes = runtime_.n_pes();
    const ep::Counts counts = exchange_.counts(got_.handle);
    if (config_.by_slot())
      return wrong_slots(round, config_, n_pes, pe_, got_,
                         static_cast<const int64_t*>(counts.counts));
    const ep::Received got =
        config_.fixed_shapes ? with_counts(got_, config_, n_pes, pe_, counts) : got_;
    return config_.by_expert() ? wrong_blocks(round, config_, n_pes, pe_, got)
                               : wrong_received(round, config_, n_pes, pe_, got);
  }

  void combine(const EpRound& round, const ep::Handle& handle, int number) {
    if (number % plan_.uncombined == plan_.uncombined - 1) return;
    // Every other round the results come from elsewhere.
    std::vector<float> elsewhere(static_cast<std::size_t>(handle.rows * config_.hidden));
    float* const results =
        number % 2 == 0 ? elsewhere.data() : static_cast<float*>(exchange_.expert_buffer(handle));
    apply_experts(round, config_, pe_, got_, results);
    be_late();
    std::vector<float> out(static_cast<std::size_t>(round.tokens(pe_) * config_.hidden), 1e30f);
    exchange_.combine({results, handle.rows, config_.hidden, ep::Type::fp32}, handle,
                      {out.data(), round.tokens(pe_), config_.hidden, ep::Type::fp32});
    wrong_ += wrong_combined(round, config_, pe_, out);
  }

  Runtime& runtime_;
  const ep::Config config_;
  const Plan plan_;
  const int pe_;
  ep::ExpertParallel exchange_;
  std::mt19937 random_;
  void* heap_tokens_ = nullptr;
  std::vector<float> tokens_, weights_;
  std::vector<int64_t> indices_;
  ep::Received got_;
  int wrong_ = 0;
};

int play_everywhere(int n_pes, const Environment& environment, const ep::Config& config,
                    const Plan& plan) {
  std::atomic<int> wrong{0};
  run_pes(n_pes, environment,
          [&](Runtime& runtime) { wrong += Player(runtime, config, plan).play(); });
  return wrong;
}

Environment nodes_of(const char* nodes, const char* emulated) {
  return {{"RAILSHMEM_NODES", nodes}, {"RAILSHMEM_RAILS", "2"}, {"RAILSHMEM_EMULATED", emulated}};
}

// The text of the Error(argument) that the call throws.
template <class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    return error.what();
  }
  return "nothing was thrown";
}
bool says(const std::string& whole, const char* part) {
  INFO(whole);
  return whole.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ep: rows arrive in their places and come back summed, on every shape") {
  for (const Shape& shape : all_shapes())
    for (const ep::Config& config : in_all_layouts(small_config(4))) {
      CAPTURE(shape.name);
      CAPTURE(config.describe(4));
      CHECK(play_everywhere(4, environment_of(shape), config, {}) == 0);
    }
}

TEST_CASE("ep: nodes of unequal size forward through the smaller one's local indices") {
  for (const char* emulated : {"", "ordered=off,atomics=off"})
    for (const ep::Config& config : in_all_layouts(small_config(5)))
      for (const char* nodes : {"2", "3"})
        CHECK(play_everywhere(5, nodes_of(nodes, emulated), config, {}) == 0);
}

TEST_CASE("ep: any number of PEs, and experts that cannot be split evenly, also fewer than PEs") {
  for (int n_pes = 1; n_pes <= 6; ++n_pes)
    for (const int64_t experts : {1, 2, 7, 3 * n_pes + 1})
      for (const char* nodes : {"0", "2"}) {
        if (n_pes == 1 && nodes[0] == '2') continue;
        ep::Config config = small_config(n_pes);
        config.experts = experts;
        config.topk = std::min<int64_t>(5, experts);
        for (const ep::Config& layout : in_all_layouts(config)) {
          CAPTURE(layout.describe(n_pes));
          Plan plan;
          plan.rounds = 4;
          CHECK(play_everywhere(n_pes, nodes_of(nodes, ""), layout, plan) == 0);
        }
      }
}

TEST_CASE("ep: a token with more experts than any fixed number: the ninth was dropped elsewhere") {
  for (const char* nodes : {"0", "2"}) {
    ep::Config config = small_config(4);
    config.experts = 19;
    for (const int64_t topk : {9, 19}) {
      config.topk = topk;
      for (const ep::Config& layout : in_all_layouts(config))
        CHECK(play_everywhere(4, nodes_of(nodes, ""), layout, {}) == 0);
    }
  }
}

TEST_CASE("ep: dispatch may deliver into the caller's arrays") {
  Plan plan;
  plan.own_arrays = true;
  for (const char* nodes : {"0", "2", "4"})
    for (const ep::Config& config : in_all_layouts(small_config(4)))
      CHECK(play_everywhere(4, nodes_of(nodes, ""), config, plan) == 0);
}

TEST_CASE("ep: with fixed shapes the counts stay where the kernels are") {
  for (const char* nodes : {"0", "2", "4"})
    for (ep::Config config : in_all_layouts(small_config(4))) {
      config.fixed_shapes = true;
      CAPTURE(config.describe(4));
      CHECK(play_everywhere(4, nodes_of(nodes, ""), config, {}) == 0);
    }
}

TEST_CASE("ep: with fixed shapes a kernel that finds no room stops its PE and says so") {
  ep::Config config = small_config(4);
  config.max_received = 4;
  config.fixed_shapes = true;
  run_pes(4, nodes_of("0", ""), [&](Runtime& runtime) {
    const std::shared_ptr<Runtime> borrowed(&runtime, [](Runtime*) {});
    ep::ExpertParallel exchange(borrowed, config);
    const std::vector<float> tokens(static_cast<std::size_t>(2 * config.hidden), 1);
    const std::vector<float> weights(10, 1);
    const std::vector<int32_t> indices(10, 6);  // of PE 2
    const ep::Batch batch{{tokens.data(), 2, config.hidden, ep::Type::fp32},
                          {indices.data(), 2, 5, ep::Type::int32},
                          {weights.data(), 2, 5, ep::Type::fp32},
                          {}};
    CHECK(says(refusal_of([&] { exchange.dispatch(batch); }),
               "PE 2 would receive 8 rows, more than max_received=4"));
  });
}

TEST_CASE("ep: a late PE never sees or causes overwritten rows") {
  Plan plan;
  plan.rounds = 40;
  for (int late = 0; late < 4; late += 3)
    for (const char* nodes : {"0", "2", "4"})
      for (const ep::Config& config :
           {small_config(4), by_expert(small_config(4), 4), by_slot(small_config(4))}) {
        plan.late_pe = late;
        CHECK(play_everywhere(4, nodes_of(nodes, "ordered=off"), config, plan) == 0);
      }
}

TEST_CASE("ep: several blocks, tokens in the heap, a tiny ring, one row per put") {
  Plan plan;
  plan.tokens_in_heap = true;
  for (const int64_t blocks : {1, 2, 3})
    for (const char* nodes : {"0", "2", "4"})
      for (ep::Config config :
           {small_config(4), by_expert(small_config(4), 4), by_slot(small_config(4))}) {
        CAPTURE(nodes);
        Environment environment = nodes_of(nodes, "");
        environment["RAILSHMEM_RING"] = "4";
        environment["RAILSHMEM_QUEUE_DEPTH"] = "8";
        config.blocks = blocks;
        CHECK(play_everywhere(4, environment, config, plan) == 0);
        plan.tokens_in_heap = !plan.tokens_in_heap;
      }
}

TEST_CASE("ep: more rows than one chunk") {
  ep::Config config = small_config(4);
  config.hidden = 4096;
  config.max_tokens = 70;
  Plan plan;
  plan.rounds = 6;
  // Without a combine between them, dispatches run ahead of the forwarders as far as they can.
  for (const int uncombined : {1, 3})
    for (const int64_t blocks : {1, 2})
      for (const char* nodes : {"2", "4"}) {
        config.blocks = blocks;
        plan.uncombined = uncombined;
        Environment environment = nodes_of(nodes, "ordered=off");
        environment["RAILSHMEM_HEAP_SIZE"] = "64M";
        CHECK(play_everywhere(4, environment, config, plan) == 0);
      }
}

TEST_CASE(
    "ep: more rows than a PE has room for is an error on every PE, and the next round works") {
  for (const char* nodes : {"0", "2", "4"}) {
    ep::Config config = small_config(4);
    config.max_received = 4;
    run_pes(4, nodes_of(nodes, ""), [&](Runtime& runtime) {
      const std::shared_ptr<Runtime> borrowed(&runtime, [](Runtime*) {});
      ep::ExpertParallel exchange(borrowed, config);
      const std::vector<float> tokens(static_cast<std::size_t>(2 * config.hidden), 1);
      const std::vector<float> weights(10, 1);
      for (int round = 0; round < 6; ++round) {
        // In even rounds everybody sends both tokens to PE 2, else each keeps its own.
        const int target = round % 2 == 0 ? 2 : runtime.my_pe();
        const std::vector<int32_t> indices(10, target * 3);
        const ep::Batch batch{{tokens.data(), 2, config.hidden, ep::Type::fp32},
                              {indices.data(), 2, 5, ep::Type::int32},
                              {weights.data(), 2, 5, ep::Type::fp32},
                              {}};
        std::vector<float> out(tokens.size());
        const auto both = [&] {
          const ep::Received got = exchange.dispatch(batch);
          exchange.combine(got.tokens, got.handle, {out.data(), 2, config.hidden, ep::Type::fp32});
        };
        if (round % 2 == 0) {
          CHECK(says(refusal_of(both), "PE 2 would receive 8 rows, more than max_received=4"));
        } else {
          both();
          CHECK(out == tokens);
        }
      }
    });
  }
}

TEST_CASE("ep: bad input is refused by name before anything is sent") {
  run_pes(2, nodes_of("2", ""), [](Runtime& runtime) {
    const std::shared_ptr<Runtime> borrowed(&runtime, [](Runtime*) {});
    const auto made = [&](auto change) {
      ep::Config config = small_config(2);
      change(config);
      return refusal_of([&] { ep::ExpertParallel unused(borrowed, config); });
    };
    CHECK(says(made([](ep::Config& c) { c.alignment = 8; }),
               "alignment=8 is for layout=expert-major"));
    CHECK(says(made([](ep::Config& c) { c.handles = 0; }), "handles=0: expected from 1"));
    CHECK(says(made([](ep::Config& c) { c.topk = 7; }), "topk=7: expected from 1 to 6"));
    CHECK(
        says(made([](ep::Config& c) { c.hidden = 5; }), "has 20 bytes: expected a multiple of 16"));
    CHECK(says(made([&](ep::Config& c) { c.max_tokens = 8 + runtime.my_pe(); }), "max_tokens 9"));

    const ep::Config config = small_config(2);
    ep::ExpertParallel exchange(borrowed, config);
    ep::ExpertParallel other(borrowed, config);
    const EpArrays arrays(EpRound(config, 2, 4), config, runtime.my_pe());
    const auto sent = [&](auto change) {
      ep::Batch batch = arrays.batch(config);
      std::vector<int32_t> indices = arrays.indices;
      batch.indices.data = indices.data();
      change(batch, indices);
      return refusal_of([&] { exchange.dispatch(batch); });
    };
    using Ids = std::vector<int32_t>;
    CHECK(says(sent([](ep::Batch& b, Ids&) { b.tokens.rows = 10; }),
               "10 tokens are more than max_tokens=9"));
    CHECK(says(sent([](ep::Batch& b, Ids&) { b.weights.columns = 4; }), "weights has shape ["));
    CHECK(says(sent([](ep::Batch& b, Ids&) { b.tokens.type = ep::Type::bf16; }),
               "of bfloat16: expected"));
    REQUIRE(arrays.rows > 1);
    CHECK(says(sent([](ep::Batch&, Ids& ids) { ids[7] = 6; }),
               "token 1, column 2: expert 6 does not exist"));
    CHECK(says(sent([](ep::Batch&, Ids& ids) { ids[0] = -2; }), "expert -2 does not exist"));

    const ep::Received first = exchange.dispatch(arrays.batch(config));
    std::vector<float> sums(arrays.tokens.size());
    const ep::Matrix out{sums.data(), arrays.rows, config.hidden, ep::Type::fp32};
    ep::Matrix fewer = first.tokens;
    fewer.rows = 0;
    CHECK(says(refusal_of([&] { exchange.combine(fewer, first.handle, out); }),
               "expert_out has shape [0"));
    CHECK(says(refusal_of([&] { other.combine(first.tokens, first.handle, out); }), "another"));
    exchange.combine(first.tokens, first.handle, out);
    CHECK(says(refusal_of([&] { exchange.combine(first.tokens, first.handle, out); }),
               "combined already"));
    exchange.dispatch(arrays.batch(config));
    CHECK(says(refusal_of([&] { exchange.expert_buffer(first.handle); }),
               "dispatch 2 has overwritten"));
    ep::Batch received = arrays.batch(config);
    received.tokens.data = first.tokens.data;
    CHECK(says(refusal_of([&] { exchange.dispatch(received); }), "deliver"));
  });
}

TEST_CASE("ep: after a wait that gave up the object says so instead of mixing rounds") {
  Environment environment = nodes_of("2", "");
  environment["RAILSHMEM_TIMEOUT_S"] = "1";
  const ep::Config config = small_config(2);
  run_pes(2, environment, [&](Runtime& runtime) {
    const std::shared_ptr<Runtime> borrowed(&runtime, [](Runtime*) {});
    ep::ExpertParallel exchange(borrowed, config);
    if (runtime.my_pe() == 1) {  // stays away, but not from the end of the job
      std::this_thread::sleep_for(std::chrono::milliseconds(1300));
      return;
    }
    const EpArrays arrays(EpRound(config, 2, 0), config, 0);
    CHECK_THROWS_WITH_AS(exchange.dispatch(arrays.batch(config)),
                         doctest::Contains("header of a remote PE"), Error);
    CHECK_THROWS_WITH_AS(exchange.dispatch(arrays.batch(config)),
                         doctest::Contains("stopped in the middle"), Error);
  });
}

TEST_CASE("ep: 16-bit formats round to nearest even and keep every value") {
  using device::ep::Bf16;
  using device::ep::Fp16;
  using device::ep::narrow;
  using device::ep::widen;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Fp16 half{static_cast<uint16_t>(bits)};
    const Bf16 brain{static_cast<uint16_t>(bits)};
    const bool half_nan = (bits & 0x7fff) > 0x7c00;
    const bool brain_nan = (bits & 0x7fff) > 0x7f80;
    if (half_nan)
      REQUIRE(std::isnan(widen(narrow<Fp16>(widen(half)))));
    else
      REQUIRE(narrow<Fp16>(widen(half)).bits == bits);
    if (brain_nan)
      REQUIRE(std::isnan(widen(narrow<Bf16>(widen(brain)))));
    else
      REQUIRE(narrow<Bf16>(widen(brain)).bits == bits);
  }
  CHECK(widen(Fp16{0x0001}) == 0x1p-24f);
  CHECK(narrow<Fp16>(0x1p-25f).bits == 0);           // a tie, to even
  CHECK(narrow<Fp16>(0x1.8p-24f).bits == 2);         // a tie, to even
  CHECK(narrow<Fp16>(1 + 0x1p-11f).bits == 0x3c00);  // a tie, to even
  CHECK(narrow<Fp16>(1 + 0x1.8p-10f).bits == 0x3c02);
  CHECK(narrow<Fp16>(65519.f).bits == 0x7bff);
  CHECK(narrow<Fp16>(65520.f).bits == 0x7c00);
  CHECK(narrow<Bf16>(1 + 0x1p-8f).bits == 0x3f80);  // a tie, to even
  CHECK(narrow<Bf16>(1 + 0x1.8p-7f).bits == 0x3f82);
  CHECK(narrow<Bf16>(3.4e38f).bits == 0x7f80);
}
