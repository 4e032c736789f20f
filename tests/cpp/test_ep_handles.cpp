// Several dispatches of one object in flight, and the halves of calls, between PEs that are
// threads.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <random>

#include "ep_round.hpp"
#include "thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;

namespace {

ep::Config config_of(int n_pes, ep::Layout layout) {
  ep::Config config;
  config.hidden = 20;
  config.experts = 3 * n_pes + 1;
  config.topk = 4;
  config.max_tokens = 9;
  config.dtype = ep::Type::fp32;
  config.layout = layout;
  config.alignment = layout == ep::Layout::expert_major ? 4 : 1;
  config.handles = 2;
  return config;
}

// One layer's way through dispatch and combine, a half at a time.
class Layer {
 public:
  Layer(ep::ExpertParallel& exchange, const Runtime& runtime, int number)
      : exchange_(exchange),
        n_pes_(runtime.n_pes()),
        pe_(runtime.my_pe()),
        round_(exchange.config(), n_pes_, number),
        arrays_(round_, exchange.config(), pe_),
        out_(arrays_.tokens.size(), 1e30f) {}

  void dispatch_send() { handle_ = exchange_.dispatch_send(arrays_.batch(exchange_.config())); }
  void dispatch_recv() {
    got_ = exchange_.dispatch_recv(handle_);
    const ep::Config& config = exchange_.config();
    if (config.by_slot())
      wrong_ += wrong_slots(round_, config, n_pes_, pe_, got_,
                            static_cast<const int64_t*>(exchange_.counts(handle_).counts));
    else if (config.by_expert())
      wrong_ += wrong_blocks(round_, config, n_pes_, pe_, got_);
    else
      wrong_ += wrong_received(round_, config, n_pes_, pe_, got_);
  }
  void combine_send() {
    auto* const results = static_cast<float*>(exchange_.expert_buffer(handle_));
    apply_experts(round_, exchange_.config(), pe_, got_, results);
    exchange_.combine_send({results, handle_.rows, exchange_.config().hidden, ep::Type::fp32},
                           handle_);
  }
  void combine_recv() {
    exchange_.combine_recv(handle_,
                           {out_.data(), arrays_.rows, exchange_.config().hidden, ep::Type::fp32});
    wrong_ += wrong_combined(round_, exchange_.config(), pe_, out_);
  }
  int wrong() const { return wrong_; }

 private:
  ep::ExpertParallel& exchange_;
  int n_pes_;
  int pe_;
  EpRound round_;
  EpArrays arrays_;
  std::vector<float> out_;
  ep::Handle handle_;
  ep::Received got_;
  int wrong_ = 0;
};

}  // namespace

TEST_CASE("ep: halves of two layers interleave while one PE is late") {
  for (const Shape& shape : all_shapes())
    for (const ep::Layout layout :
         {ep::Layout::contiguous, ep::Layout::expert_major, ep::Layout::slots}) {
      CAPTURE(shape.name);
      std::atomic<int> wrong{0};
      run_pes(4, environment_of(shape), [&](Runtime& runtime) {
        ep::ExpertParallel exchange(std::shared_ptr<Runtime>(&runtime, [](Runtime*) {}),
                                    config_of(4, layout));
        std::mt19937 random(7);
        const auto be_late = [&] {
          if (runtime.my_pe() == 3)
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
        };
        for (int number = 0; number < 24; number += 2) {
          Layer a(exchange, runtime, number), b(exchange, runtime, number + 1);
          a.dispatch_send();
          be_late();
          b.dispatch_send();
          b.dispatch_recv();
          be_late();
          a.dispatch_recv();
          a.combine_send();
          b.combine_send();
          be_late();
          b.combine_recv();
          a.combine_recv();
          wrong += a.wrong() + b.wrong();
        }
        exchange.free();
      });
      CHECK(wrong == 0);
    }
}

TEST_CASE("ep: a half that is missing is named, and the round can still be finished") {
  run_pes(2, {{"RAILSHMEM_NODES", "2"}}, [&](Runtime& runtime) {
    ep::Config config = config_of(2, ep::Layout::contiguous);
    config.handles = 1;
    ep::ExpertParallel exchange(std::shared_ptr<Runtime>(&runtime, [](Runtime*) {}), config);
    Layer first(exchange, runtime, 0), second(exchange, runtime, 1);
    first.dispatch_send();
    CHECK_THROWS_WITH_AS(second.dispatch_send(),
                         doctest::Contains("dispatch 1 has been sent and not received"), Error);
    CHECK_THROWS_WITH_AS(first.combine_send(), doctest::Contains("call dispatch_recv first"),
                         Error);
    first.dispatch_recv();
    CHECK_THROWS_WITH_AS(first.dispatch_recv(), doctest::Contains("received already"), Error);
    CHECK_THROWS_WITH_AS(first.combine_recv(), doctest::Contains("no combine_send was called"),
                         Error);
    first.combine_send();
    CHECK_THROWS_WITH_AS(second.dispatch_send(), doctest::Contains("call combine_recv first"),
                         Error);
    first.combine_recv();
    CHECK_THROWS_WITH_AS(first.combine_recv(), doctest::Contains("combined already"), Error);
    CHECK(first.wrong() == 0);
    exchange.free();
  });
}

namespace {

struct LargeShape {
  int n_pes;
  int64_t hidden;
  int64_t max_tokens;
};

}  // namespace

TEST_CASE("ep: dispatch over rows of more than 2^32 bytes of buffers: 32-bit offsets overflowed") {
  // Buffers are as large as declared, and only what is used takes memory: tokens, results, staging
  // and partial sums lie 4 GiB and more apart.
  for (const LargeShape& shape :
       {LargeShape{3, 8192, int64_t{1} << 18}, LargeShape{8, 7168, 40'000}}) {
    CAPTURE(shape.n_pes);
    ep::Config config;
    config.hidden = shape.hidden;
    config.experts = shape.n_pes;
    config.topk = 2;
    config.max_tokens = shape.max_tokens;
    config.dtype = ep::Type::bf16;
    std::atomic<int> wrong{0};
    const Environment environment{{"RAILSHMEM_NODES", "2"}, {"RAILSHMEM_HEAP_SIZE", "128G"}};
    run_pes(shape.n_pes, environment, [&](Runtime& runtime) {
      ep::ExpertParallel exchange(std::shared_ptr<Runtime>(&runtime, [](Runtime*) {}), config);
      // Token i of every PE goes to PEs i and i + 1, so that each gets two of every PE.
      const int64_t n = shape.n_pes;
      const auto row = static_cast<std::size_t>(shape.hidden);
      const auto rows = static_cast<std::size_t>(n);
      const auto of_pe = [](std::size_t pe) { return static_cast<uint16_t>(0x3f80 + pe); };
      const auto me = static_cast<std::size_t>(runtime.my_pe());
      const std::vector<uint16_t> tokens(rows * row, of_pe(me));
      std::vector<int32_t> indices;
      for (int32_t i = 0; i < n; ++i)
        indices.insert(indices.end(), {i, (i + 1) % static_cast<int32_t>(n)});
      const std::vector<float> weights(2 * rows, 1);
      const ep::Received got = exchange.dispatch({{tokens.data(), n, shape.hidden, ep::Type::bf16},
                                                  {indices.data(), n, 2, ep::Type::int32},
                                                  {weights.data(), n, 2, ep::Type::fp32},
                                                  {}});
      wrong += got.handle.rows != 2 * n;
      const auto* const arrived = static_cast<const uint16_t*>(got.tokens.data);
      for (std::size_t i = 0; i < 2 * rows * row; ++i) wrong += arrived[i] != of_pe(i / row / 2);
      auto* const results = static_cast<uint16_t*>(exchange.expert_buffer(got.handle));
      wrong += reinterpret_cast<uintptr_t>(results) - reinterpret_cast<uintptr_t>(arrived) <
               uintptr_t{1} << 32;
      std::copy_n(arrived, 2 * rows * row, results);
      std::vector<uint16_t> out(tokens.size());
      exchange.combine({results, 2 * n, shape.hidden, ep::Type::bf16}, got.handle,
                       {out.data(), n, shape.hidden, ep::Type::bf16});
      // Twice the value is one more in the exponent.
      for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != tokens[i] + 0x80;
      exchange.free();
    });
    CHECK(wrong == 0);
  }
}
