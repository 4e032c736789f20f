#include "tests/stress/oracle.hpp"

#include <cstring>

#include "kernels/shmem/atomic.hpp"

namespace railshmem::stress {

bool is_atomic(Kind kind) {
  return kind == Kind::atomic || kind == Kind::atomic_nbi || kind == Kind::count;
}

uint64_t checksum(const unsigned char* data, std::size_t bytes) {
  uint64_t sum = 1469598103934665603ull;
  for (std::size_t i = 0; i < bytes; ++i) sum = (sum ^ data[i]) * 1099511628211ull;
  return sum;
}

Oracle::Oracle(int n_pes)
    : layout_{n_pes},
      memory_(static_cast<std::size_t>(n_pes), std::vector<unsigned char>(layout_.bytes())) {}

void Oracle::play(const Round& round, bool with_atomics) {
  results_.assign(round.operations.size(), {});
  for (std::size_t pe = 0; pe < round.operations.size(); ++pe)
    for (const Operation& operation : round.operations[pe]) {
      results_[pe].push_back(0);
      if (with_atomics || !is_atomic(operation.kind))
        play_operation(operation, results_[pe].back());
    }
  if (round.collective != Collective::none) play_collective(round);
}

void Oracle::play_operation(const Operation& o, uint64_t& result) {
  unsigned char* there = at(o.pe, o.at);
  switch (o.kind) {
    case Kind::put:
    case Kind::put_nbi:
    case Kind::put_signal:
      for (std::size_t i = 0; i < o.bytes; ++i) there[i] = byte_of(o.value, i);
      break;
    case Kind::get:
    case Kind::get_nbi:
      result = checksum(there, o.bytes);
      break;
    case Kind::iput:
      for (std::size_t i = 0; i < o.bytes; ++i)
        for (std::size_t b = 0; b < o.element; ++b)
          there[i * o.dst * o.element + b] = byte_of(o.value, i * o.sst * o.element + b);
      break;
    case Kind::iget: {
      std::vector<unsigned char> got(o.bytes * o.dst * o.element);
      for (std::size_t i = 0; i < o.bytes; ++i)
        std::memcpy(&got[i * o.dst * o.element], there + i * o.sst * o.element, o.element);
      result = checksum(got.data(), got.size());
      break;
    }
    case Kind::atomic:
    case Kind::atomic_nbi: {
      uint64_t word = 0;
      std::memcpy(&word, there, o.width);
      const uint64_t mask = o.width == 8 ? ~uint64_t{0} : UINT32_MAX;
      result = word;
      word = device::atomic_result(o.op, word, o.value & mask, o.compare & mask);
      std::memcpy(there, &word, o.width);
      break;
    }
    case Kind::count: {
      uint64_t word = 0;
      std::memcpy(&word, there, 8);
      word += o.value;
      std::memcpy(there, &word, 8);
      break;
    }
    case Kind::fence:
    case Kind::quiet:
      break;
  }
}

void Oracle::play_collective(const Round& round) {
  const std::size_t unit = size_of(round.type);
  const std::size_t bytes = round.elements * unit;
  const Team& team = round.team;
  std::vector<int> pes;
  for (int i = 0; i < team.size; ++i) pes.push_back(team.start + team.stride * i);
  const auto n = pes.size();
  for (const int pe : pes)
    for (std::size_t i = 0; i < bytes * n; ++i)
      at(pe, layout_.source())[i] = source_byte(round.seed, pe, i);
  for (std::size_t member = 0; member < n; ++member) {
    unsigned char* dest = at(pes[member], layout_.dest());
    const auto source = [&](std::size_t other) { return at(pes[other], layout_.source()); };
    std::size_t end = 0;
    switch (round.collective) {
      case Collective::none:
        break;
      case Collective::broadcast:
        std::memcpy(dest, source(static_cast<std::size_t>(round.root)), bytes);
        break;
      case Collective::fcollect:
        for (std::size_t other = 0; other < n; ++other)
          std::memcpy(dest + other * bytes, source(other), bytes);
        break;
      case Collective::collect:
        for (std::size_t other = 0; other < n; ++other) {
          const std::size_t size = collected(round, static_cast<int>(other)) * unit;
          std::memcpy(dest + end, source(other), size);
          end += size;
        }
        break;
      case Collective::alltoall:
        for (std::size_t other = 0; other < n; ++other)
          std::memcpy(dest + other * bytes, source(other) + member * bytes, bytes);
        break;
      case Collective::reduce:
        std::memcpy(dest, source(0), bytes);
        for (std::size_t other = 1; other < n; ++other)
          reduce_into(round.op, round.type, dest, source(other), round.elements);
        break;
    }
  }
}

}  // namespace railshmem::stress
