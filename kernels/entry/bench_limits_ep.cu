// What moving the rows of an expert-parallel layer costs by itself, with no routing, no agreement
// and no sums: every row read once and written where dispatch writes it, and the way back. Rows are
// vectors of 16 bytes; peers' memory comes as plain addresses.
#include "kernels/arch/arch.hpp"

namespace railshmem::bench {
namespace {

using arch::Scope;
using arch::Vec16;

// Loads in flight per thread.
constexpr int kBatch = 4;

// One of `parts` pieces of every row, for one warp.
struct Piece {
  uint32_t row;
  uint32_t begin;
  uint32_t end;
};

RSH_DEVICE Piece piece_of(uint64_t number, uint32_t parts, uint32_t vectors) {
  const uint32_t width = arch::size<Scope::warp>() * kBatch;
  const uint32_t share = (vectors / parts + width - 1) / width * width;
  const auto part = static_cast<uint32_t>(number % parts);
  const uint32_t begin = part * share < vectors ? part * share : vectors;
  const uint32_t end = part + 1 == parts || vectors - begin < share ? vectors : begin + share;
  return {static_cast<uint32_t>(number / parts), begin, end};
}

// Calls work(piece) for the pieces of the calling thread's warp.
template <class Work>
RSH_DEVICE void for_my_pieces(uint32_t rows, uint32_t parts, uint32_t vectors, const Work& work) {
  const uint32_t per_block = arch::size<Scope::block>() / arch::size<Scope::warp>();
  const uint64_t warps = uint64_t{arch::blocks()} * per_block;
  uint64_t number =
      uint64_t{arch::block()} * per_block + arch::rank<Scope::block>() / arch::size<Scope::warp>();
  for (; number < uint64_t{rows} * parts; number += warps) work(piece_of(number, parts, vectors));
}

RSH_DEVICE uint64_t start_of(int32_t row, uint32_t vectors) {
  return static_cast<uint64_t>(row) * vectors;
}

}  // namespace

// Row t goes to row near_rows[t] of `near` and to row far_rows[t] of `far`.
RSH_KERNEL rsh_limit_scatter(Vec16* near, Vec16* far, const Vec16* source, const int32_t* near_rows,
                             const int32_t* far_rows, uint32_t rows, uint32_t parts,
                             uint32_t vectors) {
  const uint32_t lane = arch::rank<Scope::warp>(), lanes = arch::size<Scope::warp>();
  for_my_pieces(rows, parts, vectors, [&](const Piece& piece) {
    const Vec16* from = source + start_of(static_cast<int32_t>(piece.row), vectors);
    Vec16* here = near + start_of(near_rows[piece.row], vectors);
    Vec16* there = far + start_of(far_rows[piece.row], vectors);
    for (uint32_t i = piece.begin + lane; i < piece.end; i += kBatch * lanes) {
      Vec16 v[kBatch];
      RSH_UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (i + k * lanes < piece.end) v[k] = arch::load_once(from + i + k * lanes);
      RSH_UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (i + k * lanes < piece.end) arch::store_once(there + i + k * lanes, v[k]);
      RSH_UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (i + k * lanes < piece.end) arch::store_once(here + i + k * lanes, v[k]);
    }
  });
}

// And back: row t of `out` from both. The sum is of whole words, which costs nothing beside memory.
RSH_KERNEL rsh_limit_gather(Vec16* out, const Vec16* near, const Vec16* far,
                            const int32_t* near_rows, const int32_t* far_rows, uint32_t rows,
                            uint32_t parts, uint32_t vectors) {
  const uint32_t lane = arch::rank<Scope::warp>(), lanes = arch::size<Scope::warp>();
  for_my_pieces(rows, parts, vectors, [&](const Piece& piece) {
    const Vec16* here = near + start_of(near_rows[piece.row], vectors);
    const Vec16* there = far + start_of(far_rows[piece.row], vectors);
    Vec16* to = out + start_of(static_cast<int32_t>(piece.row), vectors);
    for (uint32_t i = piece.begin + lane; i < piece.end; i += kBatch * lanes) {
      Vec16 a[kBatch], b[kBatch];
      RSH_UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (i + k * lanes < piece.end) b[k] = arch::load_once(there + i + k * lanes);
      RSH_UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (i + k * lanes < piece.end) a[k] = arch::load_once(here + i + k * lanes);
      RSH_UNROLL
      for (int k = 0; k < kBatch; ++k) {
        if (i + k * lanes >= piece.end) continue;
        const Vec16 sum{a[k].x + b[k].x, a[k].y + b[k].y, a[k].z + b[k].z, a[k].w + b[k].w};
        arch::store_once(to + i + k * lanes, sum);
      }
    }
  });
}

}  // namespace railshmem::bench
