// Tokens that dispatch rounds to fp8: the bits that arrive, and the scales.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>

#include "ep/expert_parallel.hpp"
#include "kernels/ep/convert.hpp"
#include "thread_pes.hpp"

using namespace railshmem;
using namespace railshmem::testing;

namespace {

float value_of_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return std::nanf("");
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
  return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

constexpr int64_t kHidden = 384;
constexpr int64_t kTokens = 5;

// Magnitudes from tiny to large, by group; zeros in one.
uint16_t token_element(int pe, int64_t token, int64_t column) {
  const int64_t group = column / 128;
  if (token == 3 && group == 1) return 0;
  const auto raw = static_cast<float>((pe * 31 + token * 17 + column * 7) % 255 - 127);
  const float scaled = std::ldexp(raw, static_cast<int>(token * 9 - group * 20));
  return device::ep::narrow<device::ep::Bf16>(scaled).bits;
}

struct Group {
  float scale = 0;
  uint8_t elements[128] = {};
};
Group rounded(int pe, int64_t token, int64_t group) {
  float values[128], amax = 0;
  for (int64_t i = 0; i < 128; ++i) {
    values[i] = device::ep::widen(device::ep::Bf16{token_element(pe, token, group * 128 + i)});
    amax = std::max(amax, std::fabs(values[i]));
  }
  Group out;
  if (amax < 0x1p-100f) return out;
  out.scale = amax / 448;
  for (int64_t i = 0; i < 128; ++i) out.elements[i] = arch::to_e4m3(values[i] * (448 / amax));
  return out;
}

int wrong_row(const ep::Received& got, int64_t row, int source, int64_t token) {
  int wrong = 0;
  for (int64_t group = 0; group < kHidden / 128; ++group) {
    const Group expected = rounded(source, token, group);
    wrong += std::memcmp(static_cast<const char*>(got.tokens.data) + row * kHidden + group * 128,
                         expected.elements, 128) != 0;
    wrong +=
        static_cast<const float*>(got.scales.data)[row * (kHidden / 128) + group] != expected.scale;
  }
  return wrong;
}

}  // namespace

TEST_CASE("ep: e4m3 rounds to nearest even, keeps every value, and saturates") {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = value_of_e4m3(static_cast<uint8_t>(bits));
    if (std::isnan(value))
      CHECK((arch::to_e4m3(value) & 0x7f) == 0x7f);
    else
      CHECK(arch::to_e4m3(value) == bits);
  }
  for (int bits = 0; bits < 0x7e; ++bits) {  // halfway between neighbours: to the even one
    const float low = value_of_e4m3(static_cast<uint8_t>(bits));
    const float high = value_of_e4m3(static_cast<uint8_t>(bits + 1));
    const float middle = (low + high) / 2;
    CHECK(arch::to_e4m3(middle) == (bits % 2 == 0 ? bits : bits + 1));
    CHECK(arch::to_e4m3(std::nextafter(middle, 0.0f)) == bits);
    CHECK(arch::to_e4m3(std::nextafter(middle, 1000.0f)) == bits + 1);
  }
  CHECK(arch::to_e4m3(449) == 0x7e);
  CHECK(arch::to_e4m3(3e38f) == 0x7e);
  CHECK(arch::to_e4m3(-INFINITY) == 0xfe);
}

TEST_CASE("ep: dispatch rounds bf16 tokens to fp8 on their way, on every shape") {
  for (const Shape& shape : all_shapes())
    for (const ep::Layout layout : {ep::Layout::contiguous, ep::Layout::slots}) {
      CAPTURE(shape.name);
      ep::Config config;
      config.hidden = kHidden;
      config.experts = 4;
      config.topk = 2;
      config.max_tokens = kTokens;
      config.dtype = ep::Type::fp8_e4m3;
      config.quantise_from = ep::Type::bf16;
      config.layout = layout;
      std::atomic<int> wrong{0};
      run_pes(4, environment_of(shape), [&](Runtime& runtime) {
        ep::ExpertParallel exchange(std::shared_ptr<Runtime>(&runtime, [](Runtime*) {}), config);
        const int me = runtime.my_pe();
        std::vector<uint16_t> tokens;
        std::vector<int64_t> indices;
        const std::vector<float> weights(2 * kTokens, 1);
        for (int64_t token = 0; token < kTokens; ++token) {  // to everybody in turn, and its next
          indices.insert(indices.end(), {(token + me) % 4, (token + me + 1) % 4});
          for (int64_t column = 0; column < kHidden; ++column)
            tokens.push_back(token_element(me, token, column));
        }
        const ep::Matrix given{tokens.data(), kTokens, kHidden, ep::Type::bf16};
        ep::Received got = exchange.dispatch({given,
                                              {indices.data(), kTokens, 2, ep::Type::int64},
                                              {weights.data(), kTokens, 2, ep::Type::fp32},
                                              {}});
        for (int again = 0; again < 2; ++again) {
          int64_t row = 0;
          for (int source = 0; source < 4; ++source)
            for (int64_t token = 0; token < kTokens; ++token) {
              const bool comes = (token + source) % 4 == me || (token + source + 1) % 4 == me;
              const int64_t place = config.by_slot() ? source * kTokens + token : row;
              if (comes) wrong += wrong_row(got, place, source, token);
              row += comes;
            }
          if (again == 0) got = exchange.dispatch(given, {}, got.handle);
        }
        exchange.free();
      });
      CHECK(wrong == 0);
    }
}

TEST_CASE("ep: what cannot be rounded is refused by name") {
  run_pes(1, {}, [](Runtime& runtime) {
    ep::Config config;
    config.hidden = kHidden;
    config.experts = 1;
    config.topk = 1;
    config.max_tokens = 1;
    config.dtype = ep::Type::fp8_e5m2;
    config.quantise_from = ep::Type::bf16;
    const std::shared_ptr<Runtime> borrowed(&runtime, [](Runtime*) {});
    CHECK_THROWS_WITH_AS(ep::ExpertParallel(borrowed, config),
                         doctest::Contains("quantise_from=bfloat16 with dtype=float8_e5m2"), Error);
  });
}
