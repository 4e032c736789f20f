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
    return static_cast<float>((pe * 7 + token * 3 + column + round_) % 9 - 4);
  }
  int owner(int id) const { return id < 0 ? -1 : id / static_cast<int>(config_.experts / n_pes_); }
  std::set<int> destinations(int pe, int token) const {
    std::set<int> out;
    for (int k = 0; k < config_.topk; ++k) out.insert(owner(expert(pe, token, k)));
    out.erase(-1);
    return out;
  }

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

// Differences between what a PE received and what it should have; 0 when all is well.
inline int wrong_received(const EpRound& round, const ep::Config& config, int n_pes, int pe,
                          const ep::Received& got) {
  int wrong = 0;
  int64_t row = 0;
  const int local_experts = static_cast<int>(config.experts) / n_pes;
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
        const int local = round.owner(id) == pe ? id - pe * local_experts : -1;
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

// The expert of PE d multiplies by d + 1, so that the result tells whose rows were summed.
inline int wrong_combined(const EpRound& round, const ep::Config& config, int pe,
                          const std::vector<float>& out) {
  int wrong = 0;
  for (int token = 0; token < round.tokens(pe); ++token) {
    int factor = 0;
    for (const int destination : round.destinations(pe, token)) factor += destination + 1;
    for (int column = 0; column < config.hidden; ++column)
      wrong += out[static_cast<std::size_t>(token * config.hidden + column)] !=
               static_cast<float>(factor) * round.value(pe, token, column);
  }
  return wrong;
}

}  // namespace railshmem::testing
