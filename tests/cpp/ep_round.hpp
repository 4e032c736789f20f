// One round of expert parallelism as a test sees it: what each PE sends, what it must receive, and
// what must come back. Everything is computed from (PE, round), so that every PE knows it of all
// others.
#pragma once

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "ep/expert_parallel.hpp"

namespace railshmem::testing {

class EpRound {
 public:
  EpRound(const ep::Config& config, int n_pes, int round)
      : config_(config), n_pes_(n_pes), round_(round) {}

  int tokens(int pe) const { return random(pe, 0, 0) % static_cast<int>(config_.max_tokens + 1); }
  // About one in six is -1, and duplicates are common.
  int expert(int pe, int token, int k) const {
    const int drawn = random(pe, token + 1, k + 1);
    return drawn % 6 == 0 ? -1 : drawn / 6 % static_cast<int>(config_.experts);
  }
  float weight(int pe, int token, int k) const {
    return static_cast<float>(random(pe, token + 1, 1000 + k) % 1024) / 1024;
  }
  // Small integers: exact in every type, and so are their sums.
  float value(int pe, int token, int column) const {
    return static_cast<float>((pe * 7 + token * 3 + column + round_ + shift) % 9 - 4);
  }
  int first_expert(int pe) const { return pe * static_cast<int>(config_.experts) / n_pes_; }
  int owner(int id) const {
    for (int pe = n_pes_ - 1; pe >= 0 && id >= 0; --pe)
      if (first_expert(pe) <= id) return pe;
    return -1;
  }
  // The weight of an expert for a token: of all places where the token names it.
  float pair_weight(int pe, int token, int id) const {
    float sum = 0;
    for (int k = 0; k < config_.topk; ++k)
      if (expert(pe, token, k) == id) sum += weight(pe, token, k);
    return sum;
  }
  bool names(int pe, int token, int id) const {
    for (int k = 0; k < config_.topk; ++k)
      if (expert(pe, token, k) == id) return true;
    return false;
  }
  std::set<int> destinations(int pe, int token) const {
    std::set<int> out;
    for (int k = 0; k < config_.topk; ++k) out.insert(owner(expert(pe, token, k)));
    out.erase(-1);
    return out;
  }

  int shift = 0;  // other tokens by the same routing

 private:
  int random(int a, int b, int c) const {
    uint64_t x = static_cast<uint64_t>(a) * 0x9e3779b97f4a7c15ull +
                 static_cast<uint64_t>(b) * 0xc2b2ae3d27d4eb4full +
                 static_cast<uint64_t>(c) * 0x165667b19e3779f9ull +
                 static_cast<uint64_t>(round_) * 0x27d4eb2f165667c5ull;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
    return static_cast<int>((x ^ x >> 29) >> 40);
  }

  ep::Config config_;
  int n_pes_;
  int round_;
};

// The arrays of one PE's batch, fp32.
struct EpArrays {
  EpArrays(const EpRound& round, const ep::Config& config, int pe) : rows(round.tokens(pe)) {
    for (int token = 0; token < rows; ++token) {
      for (int column = 0; column < config.hidden; ++column)
        tokens.push_back(round.value(pe, token, column));
      for (int k = 0; k < config.topk; ++k) {
        indices.push_back(round.expert(pe, token, k));
        weights.push_back(round.weight(pe, token, k));
      }
    }
  }
  ep::Batch batch(const ep::Config& config) const {
    ep::Batch out;
    out.tokens = {tokens.data(), rows, config.hidden, ep::Type::fp32};
    out.indices = {indices.data(), rows, config.topk, ep::Type::int32};
    out.weights = {weights.data(), rows, config.topk, ep::Type::fp32};
    return out;
  }

  int rows;
  std::vector<float> tokens;
  std::vector<int32_t> indices;
  std::vector<float> weights;
};

// Differences between what a PE received in the contiguous layout and what it should have; 0 when
// all is well.
inline int wrong_received(const EpRound& round, const ep::Config& config, int n_pes, int pe,
                          const ep::Received& got) {
  int wrong = 0;
  int64_t row = 0;
  for (int source = 0; source < n_pes; ++source) {
    const int64_t before = row;
    for (int token = 0; token < round.tokens(source); ++token) {
      if (round.destinations(source, token).count(pe) == 0) continue;
      if (row == got.handle.rows) return wrong + 1;
      const auto* const values = static_cast<const float*>(got.tokens.data) + row * config.hidden;
      for (int column = 0; column < config.hidden; ++column)
        wrong += values[column] != round.value(source, token, column);
      for (int k = 0; k < config.topk; ++k) {
        const int id = round.expert(source, token, k);
        const int local = round.owner(id) == pe ? id - round.first_expert(pe) : -1;
        wrong += static_cast<const int64_t*>(got.indices.data)[row * config.topk + k] != local;
        wrong += static_cast<const float*>(got.weights.data)[row * config.topk + k] !=
                 round.weight(source, token, k);
      }
      ++row;
    }
    wrong += got.counts[static_cast<std::size_t>(source)] != row - before;
  }
  return wrong + (row != got.handle.rows);
}

// The same in the expert-major layout.
inline int wrong_blocks(const EpRound& round, const ep::Config& config, int n_pes, int pe,
                        const ep::Received& got) {
  const auto* const tokens = static_cast<const float*>(got.tokens.data);
  const auto* const weights = static_cast<const float*>(got.weights.data);
  const auto* const indices = static_cast<const int64_t*>(got.indices.data);
  const int first = round.first_expert(pe), last = round.first_expert(pe + 1);
  if (static_cast<int>(got.expert_counts.size()) != last - first) return 1;
  int wrong = 0;
  int64_t row = 0;
  const auto compare = [&](int64_t index, float weight, auto value) {
    if (row == got.handle.rows) return 1;
    int different = (indices[row] != index) + (weights[row] != weight);
    for (int column = 0; column < config.hidden; ++column)
      different += tokens[row * config.hidden + column] != value(column);
    ++row;
    return different;
  };
  for (int id = first; id < last; ++id) {
    const auto expert = static_cast<std::size_t>(id - first);
    const int64_t begin = row;
    for (int source = 0; source < n_pes; ++source)
      for (int token = 0; token < round.tokens(source); ++token)
        if (round.names(source, token, id))
          wrong += compare(id - first, round.pair_weight(source, token, id),
                           [&](int column) { return round.value(source, token, column); });
    wrong += got.expert_counts[expert] != row - begin;
    while (row % config.alignment != 0) wrong += compare(-1, 0, [](int) { return 0.0f; });
    wrong += got.padded_counts[expert] != row - begin;
  }
  return wrong + (row != got.handle.rows);
}

// The same in the layout by slots; `counts` say what every source sent.
inline int wrong_slots(const EpRound& round, const ep::Config& config, int n_pes, int pe,
                       const ep::Received& got, const int64_t* counts) {
  const auto* const tokens = static_cast<const float*>(got.tokens.data);
  const auto* const weights = static_cast<const float*>(got.weights.data);
  const auto* const indices = static_cast<const int64_t*>(got.indices.data);
  int wrong = got.handle.rows != n_pes * config.max_tokens;
  for (int source = 0; source < n_pes; ++source) {
    wrong += counts[source] != round.tokens(source);
    for (int token = 0; token < config.max_tokens; ++token) {
      const int64_t row = source * config.max_tokens + token;
      const bool comes =
          token < round.tokens(source) && round.destinations(source, token).count(pe) > 0;
      for (int k = 0; k < config.topk; ++k) {
        const int id = comes ? round.expert(source, token, k) : -1;
        const int local = round.owner(id) == pe ? id - round.first_expert(pe) : -1;
        wrong += indices[row * config.topk + k] != local;
        if (comes) wrong += weights[row * config.topk + k] != round.weight(source, token, k);
      }
      for (int column = 0; column < config.hidden && comes; ++column)
        wrong += tokens[row * config.hidden + column] != round.value(source, token, column);
    }
  }
  return wrong;
}

// With fixed shapes: what dispatch would have returned without them, from the counts it left.
inline ep::Received with_counts(ep::Received got, const ep::Config& config, int n_pes, int pe,
                                const ep::Counts& counts) {
  const auto list = [](const void* from, int64_t n) {
    const auto* const values = static_cast<const int64_t*>(from);
    return std::vector<int64_t>(values, values + n);
  };
  got.handle.rows = *static_cast<const int64_t*>(counts.rows);
  got.counts = list(counts.counts, n_pes);
  if (!config.by_expert()) return got;
  const int64_t mine = (pe + 1) * config.experts / n_pes - pe * config.experts / n_pes;
  got.expert_counts = list(counts.expert_counts, mine);
  got.padded_counts = list(counts.padded_counts, mine);
  return got;
}

// What the experts make of a received row. Contiguous: PE d multiplies by d + 1. Expert-major:
// expert e multiplies by e + 1, and makes nonsense of rows that only fill a block. The result tells
// whose rows were summed.
inline void apply_experts(const EpRound& round, const ep::Config& config, int pe,
                          const ep::Received& got, float* results) {
  const auto* const tokens = static_cast<const float*>(got.tokens.data);
  const auto* const indices = static_cast<const int64_t*>(got.indices.data);
  for (int64_t row = 0; row < got.handle.rows; ++row) {
    const auto expert = static_cast<float>(indices[row] + round.first_expert(pe) + 1);
    const bool filling = config.by_expert() && indices[row] < 0;
    const float factor = config.by_expert() ? expert : static_cast<float>(pe + 1);
    for (int64_t i = row * config.hidden; i < (row + 1) * config.hidden; ++i)
      results[i] = filling ? std::nanf("") : tokens[i] * factor;
  }
}

inline int wrong_combined(const EpRound& round, const ep::Config& config, int pe,
                          const std::vector<float>& out) {
  int wrong = 0;
  for (int token = 0; token < round.tokens(pe); ++token) {
    float factor = 0;
    if (config.by_expert())
      for (int k = 0; k < config.topk; ++k)  // an index of -1 adds nothing
        factor += static_cast<float>(round.expert(pe, token, k) + 1) * round.weight(pe, token, k);
    else
      for (const int destination : round.destinations(pe, token))
        factor += static_cast<float>(destination + 1);
    for (int column = 0; column < config.hidden; ++column)
      wrong += out[static_cast<std::size_t>(token * config.hidden + column)] !=
               factor * round.value(pe, token, column);
  }
  return wrong;
}

}  // namespace railshmem::testing
