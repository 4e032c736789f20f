// Rows on their way into the members' buffers: each is read once and written to all of them.
#pragma once

#include "kernels/arch/row_mover.hpp"
#include "kernels/ep/expert_major.hpp"
#include "kernels/ep/quantise.hpp"

namespace railshmem::device::ep {

// Writes the weights and the member's own ids of an arrival, by a warp.
RSH_DEVICE void place_routing(const DeviceContext* ctx, const Exchange& x, const Stream& stream,
                              uint64_t row, int32_t member, uint64_t arrival) {
  const uint64_t topk = x.shape.topk;
  const int32_t pe = x.node.members[member];
  float* const weights = in_peer(ctx, x.buffers.weights + arrival * topk, pe);
  int64_t* const indices = in_peer(ctx, x.buffers.indices + arrival * topk, pe);
  RSH_ROLLED
  for (uint64_t k = arch::rank<kWarp>(); k < topk; k += arch::size<kWarp>()) {
    const int64_t id = id_at(stream.ids, row * topk + k);
    int64_t local = -1;
    if (id >= 0) {
      const Home home = x.homes[id];
      if (home.member == member) local = home.local;
    }
    weights[k] = stream.weights[row * topk + k];
    indices[k] = local;
  }
}

// The i-th member in the order in which a PE writes: others first, because they are further away,
// each PE beginning with another, itself last.
RSH_DEVICE int32_t member_in_turn(const Node& node, uint32_t i) {
  const uint32_t member = static_cast<uint32_t>(node.me) + 1 + i;
  const auto n = static_cast<uint32_t>(node.n_members);
  return static_cast<int32_t>(member < n ? member : member - n);
}

// By slot: says in a member's buffers that a row did not come, by a warp.
RSH_DEVICE void leave_empty(const Exchange& x, int64_t* indices) {
  RSH_ROLLED
  for (uint64_t k = arch::rank<kWarp>(); k < x.shape.topk; k += arch::size<kWarp>())
    indices[k] = -1;
}

// Rows on their way: all of a stream, as they come where they are forwarded from another node.
// `again`: the routing is not new, and what belongs to it is there.
struct Journey {
  const Stream& stream;
  uint64_t round;
  bool forwarded;
  bool again;
};

// Writes a part of a row, and with the first part what belongs to the row, into the buffers of up
// to kListed members from the `from`-th on.
RSH_DEVICE bool place_part(const DeviceContext* ctx, const Exchange& x, const Journey& journey,
                           const Part& part, uint32_t from, arch::RowMover* mover) {
  const Shape& shape = x.shape;
  const Stream& stream = journey.stream;
  const uint32_t left = static_cast<uint32_t>(x.node.n_members) - from;
  const uint32_t n = left < arch::kListed ? left : arch::kListed;
  const WarpList arrivals(n, [&](uint32_t i) {
    return static_cast<uint64_t>(arrival_of(x, stream, part.row, member_in_turn(x.node, from + i)));
  });
  // All lanes look, so that each sees the row.
  if (journey.forwarded && arrivals.mask() != 0 &&
      !arch::all<kWarp>(wait_for(ctx, &x.buffers.from[stream.pe].rows,
                                 progress(shape, journey.round, part.row + 1), Waiting::ep_rows,
                                 stream.pe)))
    return false;
  const WarpList places =
      !by_expert(shape) ? arrivals : arrivals.changed([&](uint32_t i, uint64_t) {
        return first_place(x, stream, part.row, member_in_turn(x.node, from + i));
      });
  const auto in_member = [&](uint32_t i, void* at) {
    return listed(
        in_peer(ctx, static_cast<char*>(at), x.node.members[member_in_turn(x.node, from + i)]));
  };
  const WarpList rows = places.changed([&](uint32_t i, uint64_t place) {
    return in_member(i, x.buffers.tokens + place * shape.token_bytes);
  });
  const auto scales = [&] {
    return places.changed([&](uint32_t i, uint64_t place) {
      return in_member(i, x.buffers.scales + place * shape.scales);
    });
  };
  if (stream.given != Given::as_it_travels) {
    quantise_part(rows, scales(), stream.given, stream.tokens + part.row * 2 * shape.hidden,
                  part.first, part.last);
  } else {
    mover->copy_to_each(rows, stream.tokens + part.row * shape.token_bytes, part.first, part.last);
    if (part.number == 0 && shape.scales > 0)
      arch::copy_to_each(scales(), stream.scales + part.row * shape.scales, 0,
                         shape.scales * sizeof(float));
  }
  if (part.number > 0) return true;
  if (journey.again) return true;
  RSH_ROLLED
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t member = member_in_turn(x.node, from + i);
    const uint64_t arrival = arrivals[i];
    if ((arrivals.mask() >> i & 1) == 0) {
      if (!by_slot(shape)) continue;
      const uint64_t slot = static_cast<uint64_t>(stream.pe) * shape.max_tokens + part.row;
      leave_empty(x, in_peer(ctx, x.buffers.indices + slot * shape.topk, x.node.members[member]));
    } else if (by_expert(shape)) {
      place_pairs(ctx, x, stream, part.row, member, arrival);
    } else {
      place_routing(ctx, x, stream, part.row, member, arrival);
    }
  }
  return true;
}

// In bytes of what travels. Scales belong to whole groups of elements.
RSH_DEVICE Parts parts_to_place(const Stream& stream, const Shape& shape) {
  const uint32_t unit = stream.given == Given::as_it_travels ? 16 : kScaled;
  return {stream.rows, shape.token_bytes, unit, arch::warp_of_grid()};
}

// In a job of several nodes: makes the bytes that travel of this PE's own tokens, for NICs to send.
RSH_DEVICE void quantise_own(const Exchange& x, Stream* own) {
  const Shape& shape = x.shape;
  const Parts parts = parts_to_place(*own, shape);
  parts.each([&](const Part& part) {
    const WarpList row(
        1, [&](uint32_t) { return listed(x.buffers.send_rows + part.row * shape.token_bytes); });
    const WarpList scales(
        1, [&](uint32_t) { return listed(x.buffers.send_scales + part.row * shape.scales); });
    quantise_part(row, scales, own->given, own->tokens + part.row * 2 * shape.hidden, part.first,
                  part.last);
    return true;
  });
  own->given = Given::as_it_travels;
  own->tokens = x.buffers.send_rows;
  own->scales = x.buffers.send_scales;
}

RSH_DEVICE bool place_rows(const DeviceContext* ctx, const Exchange& x, const Journey& journey,
                           arch::RowMover* mover) {
  const TraceSpan span(ctx->trace, Moment::ep_place, 0, -1, -1, 0, journey.round);
  const Parts parts = parts_to_place(journey.stream, x.shape);
  const bool ok = parts.each([&](const Part& part) {
    RSH_ROLLED
    for (uint32_t from = 0; from < static_cast<uint32_t>(x.node.n_members); from += arch::kListed)
      if (!place_part(ctx, x, journey, part, from, mover)) return false;
    return true;
  });
  mover->finish();
  return ok;
}

}  // namespace railshmem::device::ep
