#include "shmem/api/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "shmem/api/collective_call.hpp"

namespace railshmem {
namespace {

// Broadcasts of more than this are cut into slices, one per member of a node, so that every rail
// carries a part.
constexpr std::size_t kSliced = 64 * 1024;

struct Slice {
  std::size_t begin;
  std::size_t size;
};

// Part `index` of `parts` of [0, total), in whole units of `unit`.
Slice slice_of(std::size_t total, std::size_t unit, int index, int parts) {
  const std::size_t units = total / unit;
  const auto i = static_cast<std::size_t>(index);
  const auto n = static_cast<std::size_t>(parts);
  const std::size_t begin = units / n * i + std::min(i, units % n);
  const std::size_t count = units / n + (i < units % n ? 1 : 0);
  return {begin * unit, count * unit};
}

int smallest_node(const Team& team) {
  std::size_t least = SIZE_MAX;
  for (const auto& members : team.nodes()) least = std::min(least, members.size());
  return static_cast<int>(least);
}

bool is_small(const Team& team, std::size_t bytes) {
  return team.n_pes() <= kExchangePes && bytes <= kExchangeBytes;
}

char* at(void* base, std::size_t offset) {
  return static_cast<char*>(base) + offset;
}
const char* at(const void* base, std::size_t offset) {
  return static_cast<const char*>(base) + offset;
}

}  // namespace

void team_sync(Runtime& runtime, Team& team) {
  runtime.parts().require_usable();
  runtime.parts().meetings.sync(team);
}

// ---- broadcast -------------------------------------------------------------------------------

namespace {

// The nodes form a binomial tree with the root's node at its top: calls f(node) for each child.
template <class F>
void for_each_child(int node, int top, int n_nodes, const F& f) {
  const int place = (node - top + n_nodes) % n_nodes;
  for (int bit = 1; bit < n_nodes; bit *= 2) {
    if ((place & bit) != 0) break;
    if (place + bit < n_nodes) f((place + bit + top) % n_nodes);
  }
}

int parent_of(int node, int top, int n_nodes) {
  const int place = (node - top + n_nodes) % n_nodes;
  return ((place & (place - 1)) + top) % n_nodes;  // without its lowest bit
}

void broadcast_large(CollectiveCall& call, void* dest, const void* source, std::size_t bytes,
                     int root) {
  const Team& team = call.team;
  const int me = team.my_pe();
  const int node = team.device().node;
  const int top = team.node_of(root);
  const int n_nodes = team.device().n_nodes;
  const int slices = n_nodes > 1 && bytes > kSliced ? smallest_node(team) : 1;
  // The members of a node that pass slices on are its first, but in the top node the root is the
  // first of them: it has the data.
  const auto carrier = [&](int slice, int in_node) {
    const auto& members = team.nodes()[static_cast<std::size_t>(in_node)];
    const int first = in_node == top ? team.local_of(root) : 0;
    return members[static_cast<std::size_t>(first + slice) % members.size()];
  };
  int my_slice = -1;
  for (int slice = 0; slice < slices; ++slice)
    if (carrier(slice, node) == me) my_slice = slice;

  const char* from_root = node == top ? call.in(root, at(source, 0)) : nullptr;
  const auto place = [&](int slice) { return slice_of(bytes, 1, slice, slices); };
  if (my_slice >= 0) {
    const Slice part = place(my_slice);
    if (node == top && me != root)
      call.copy(at(dest, part.begin), from_root + part.begin, part.size);
    if (node != top) call.wait_told(me, carrier(my_slice, parent_of(node, top, n_nodes)));
    const char* have = me == root ? at(source, part.begin) : at(dest, part.begin);
    for_each_child(node, top, n_nodes, [&](int child) {
      call.send(carrier(my_slice, child), at(dest, part.begin), have, part.size, true);
    });
    if (node != top)
      for (const int mate : team.nodes()[static_cast<std::size_t>(node)])
        if (mate != me) call.tell(mate);
  }
  for (int slice = 0; slice < slices; ++slice) {
    const Slice part = place(slice);
    const int holder = carrier(slice, node);
    const bool from_top = node == top && (slice != my_slice || me == root);
    if (from_top && !(me == root && dest == source))
      call.copy(at(dest, part.begin), from_root + part.begin, part.size);
    if (node != top && holder != me) {
      call.wait_told(me, holder);
      call.copy(at(dest, part.begin), call.in(holder, at(dest, part.begin)), part.size);
    }
  }
}

}  // namespace

void broadcast(Runtime& runtime, Team& team, void* dest, const void* source, std::size_t bytes,
               int root) {
  CollectiveCall call(runtime, team, "shmem_broadcast");
  team.world_pe("shmem_broadcast", root);
  call.require_symmetric("dest", dest, bytes);
  call.require_symmetric("source", source, bytes);
  if (dest != source) call.require_apart(dest, bytes, source, bytes);
  call.begin("dest offset, source offset, bytes, root", call.offset(dest), call.offset(source),
             bytes, root);
  const bool in_place = team.my_pe() == root && dest == source;
  if (is_small(team, bytes)) {
    call.exchange(source, team.my_pe() == root ? bytes : 0,
                  [&](int member, const char* data, std::size_t size) {
                    if (member == root && !in_place) call.copy(dest, data, size);
                  });
    return;
  }
  broadcast_large(call, dest, source, bytes, root);
  call.end();
}

// ---- collect and fcollect --------------------------------------------------------------------

namespace {

// `begins[i]`: where member i's bytes start in dest, up to begins[i + 1]. Each source crosses the
// network once per remote node; what reached a node is read there by all.
void gather_large(CollectiveCall& call, void* dest, const void* source,
                  const std::vector<std::size_t>& begins) {
  const Team& team = call.team;
  const int me = team.my_pe();
  const int node = team.device().node;
  const auto index = static_cast<std::size_t>(me);
  const std::size_t bytes = begins[index + 1] - begins[index];
  for (int i = 1; i < team.device().n_nodes; ++i) {
    const int other = (node + i) % team.device().n_nodes;
    call.send(call.counterpart(me, other), at(dest, begins[index]), source, bytes, true);
  }
  for (int i = 0; i < team.n_pes(); ++i) {  // starting with my own: members read different ones
    const int from = (me + i) % team.n_pes();
    const auto which = static_cast<std::size_t>(from);
    const std::size_t size = begins[which + 1] - begins[which];
    char* to = at(dest, begins[which]);
    if (call.is_local(from)) {
      call.copy(to, call.in(from, at(source, 0)), size);
      continue;
    }
    const int holder = call.counterpart(from, node);
    call.wait_told(holder, from);
    if (holder != me) call.copy(to, call.in(holder, to), size);
  }
}

}  // namespace

void fcollect(Runtime& runtime, Team& team, void* dest, const void* source, std::size_t bytes) {
  CollectiveCall call(runtime, team, "shmem_fcollect");
  const auto n = static_cast<std::size_t>(team.n_pes());
  call.require_symmetric("dest", dest, call.total(bytes, n));
  call.require_symmetric("source", source, bytes);
  call.require_apart(dest, bytes * n, source, bytes);
  call.begin("dest offset, source offset, bytes", call.offset(dest), call.offset(source), bytes);
  if (is_small(team, bytes)) {
    call.exchange(source, bytes, [&](int member, const char* data, std::size_t size) {
      call.copy(at(dest, static_cast<std::size_t>(member) * bytes), data, size);
    });
    return;
  }
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i <= n; ++i) begins.push_back(i * bytes);
  gather_large(call, dest, source, begins);
  call.end();
}

namespace {

struct Sizes {
  std::size_t bytes;  // that a member gives
  std::size_t room;   // that its dest has
};

// Collective: by member.
std::vector<Sizes> everybodys(CollectiveCall& call, const Sizes& mine) {
  const auto n = static_cast<std::size_t>(call.team.n_pes());
  std::vector<Sizes> all(n);
  if (is_small(call.team, sizeof mine)) {
    call.meetings.exchange(call.team, &mine, sizeof mine,
                           [&](int member, const char* data, std::size_t size) {
                             std::memcpy(&all[static_cast<std::size_t>(member)], data, size);
                           });
    return all;
  }
  auto* work = device::at_offset<Sizes>(&call.parts.context, call.team.area().work);
  if ((n + 1) * sizeof mine > TeamArea::kWorkBytes)
    fail(ErrorKind::argument, "shmem_collect: teams of ", n, " PEs are beyond its work area");
  work[0] = mine;
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i <= n; ++i) begins.push_back(i * sizeof mine);
  call.meet();  // everybody's is there
  gather_large(call, work + 1, work, begins);
  call.meet();
  ++call.team.transfers;
  std::copy(work + 1, work + 1 + n, all.begin());
  return all;
}

}  // namespace

void collect(Runtime& runtime, Team& team, void* dest, std::size_t dest_bytes, const void* source,
             std::size_t bytes) {
  CollectiveCall call(runtime, team, "shmem_collect");
  call.require_symmetric("dest", dest, dest_bytes);
  call.require_symmetric("source", source, bytes);
  call.require_apart(dest, dest_bytes, source, bytes);
  call.begin("dest offset, source offset", call.offset(dest), call.offset(source));
  std::vector<std::size_t> begins{0};
  std::size_t room = dest_bytes;
  for (const Sizes& other : everybodys(call, {bytes, dest_bytes})) {
    begins.push_back(begins.back() + other.bytes);
    room = std::min(room, other.room);
  }
  // Judged by what all know, so that all judge alike.
  if (begins.back() > room) {
    call.end();
    fail(ErrorKind::argument, "shmem_collect: the members give ", begins.back(),
         " bytes, but dest has only ", room, " on some PE");
  }
  gather_large(call, dest, source, begins);
  call.end();
}

// ---- alltoall --------------------------------------------------------------------------------

void alltoall(Runtime& runtime, Team& team, void* dest, const void* source, std::size_t bytes) {
  alltoalls(runtime, team, dest, source, 1, 1, bytes, 1);
}

namespace {

// Block of mine that goes to `member`, whose place there is `to`.
void send_strided(CollectiveCall& call, int member, char* to, const char* from, std::ptrdiff_t dst,
                  std::ptrdiff_t sst, std::size_t nelems, std::size_t element_bytes) {
  if (dst == 1 && sst == 1) return call.send(member, to, from, nelems * element_bytes, false);
  Context& context = *call.parts.default_context;
  context.iput(to, from, dst, sst, nelems, element_bytes, call.world(member));
}

}  // namespace

void alltoalls(Runtime& runtime, Team& team, void* dest, const void* source, std::ptrdiff_t dst,
               std::ptrdiff_t sst, std::size_t nelems, std::size_t element_bytes) {
  const bool plain = dst == 1 && sst == 1;
  CollectiveCall call(runtime, team, plain ? "shmem_alltoall" : "shmem_alltoalls");
  if (dst < 1 || sst < 1)
    fail(ErrorKind::argument, "shmem_alltoalls: strides dst ", dst, " and sst ", sst,
         ": expected at least 1");
  const auto n = static_cast<std::size_t>(team.n_pes());
  const std::size_t to_step = call.total(element_bytes * static_cast<std::size_t>(dst), nelems);
  const std::size_t from_step = call.total(element_bytes * static_cast<std::size_t>(sst), nelems);
  call.require_symmetric("dest", dest, call.total(to_step, n));
  call.require_symmetric("source", source, call.total(from_step, n));
  call.require_apart(dest, to_step * n, source, from_step * n);
  call.begin("dest offset, source offset, dst, sst, nelems, element bytes", call.offset(dest),
             call.offset(source), dst, sst, nelems, element_bytes);
  const auto me = static_cast<std::size_t>(team.my_pe());
  const auto move = [&](std::size_t member) {
    send_strided(call, static_cast<int>(member), at(dest, me * to_step),
                 at(source, member * from_step), dst, sst, nelems, element_bytes);
  };
  if (nelems > 0) {
    // What goes through NICs first: it travels while this PE copies inside its node.
    for (std::size_t i = 0; i < n; ++i)
      if (!call.is_local(static_cast<int>((me + i) % n))) move((me + i) % n);
    for (std::size_t i = 0; i < n; ++i)
      if (call.is_local(static_cast<int>((me + i) % n))) move((me + i) % n);
  }
  call.end();
}

// ---- reductions ------------------------------------------------------------------------------

namespace {

struct Reduction {
  ReduceOp op;
  ElementType type;
  std::size_t unit;

  void operator()(void* into, const void* from, std::size_t bytes) const {
    reduce_into(op, type, into, from, bytes / unit);
  }
};

// Small enough to stay in a core's cache while all members' parts are added to it; whole elements.
constexpr std::size_t kCached = 16 * 1024;
// Of a GPU's memory, so large that what a copy to the host costs is spread over much.
constexpr std::size_t kStaged = 1024 * 1024;

// `into` = [begin, begin + size) of the sources of my node's members, in their order.
void reduce_node(CollectiveCall& call, char* into, const void* source, Slice part,
                 const Reduction& combine) {
  const Team& team = call.team;
  const auto& mates = team.nodes()[static_cast<std::size_t>(team.device().node)];
  const char* own = at(source, part.begin);
  const HeapMemory& memory = call.parts.memory;
  alignas(64) char block[kCached];
  std::vector<char> staged(memory.on_gpu() ? std::min(kStaged, part.size) : 0);
  const std::size_t step = memory.on_gpu() ? kStaged : kCached;
  for (std::size_t done = 0; done < part.size; done += step) {
    const std::size_t bytes = std::min(step, part.size - done);
    char* sum = into + done;
    // In place, my own part must last until its turn.
    if (into == own) sum = block;
    if (memory.on_gpu()) sum = staged.data();
    bool first = true;
    for (const int mate : mates) {
      const HeapView theirs(memory, call.in(mate, own + done), bytes);
      if (first)
        std::memcpy(sum, theirs.data(), bytes);
      else
        combine(sum, theirs.data(), bytes);
      first = false;
    }
    if (sum != into + done) call.copy(into + done, sum, bytes);
  }
}

// The same part of all nodes' sums: scattered among the nodes' carriers of this slice, summed in
// the order of nodes, and sent to all of them.
void reduce_nodes(CollectiveCall& call, void* dest, char* partial, std::size_t begin,
                  std::size_t size, char* landing, const Reduction& combine) {
  const Team& team = call.team;
  const int n_nodes = team.device().n_nodes;
  const int node = team.device().node;
  const int me = team.my_pe();
  const Slice mine = slice_of(size, combine.unit, node, n_nodes);
  const auto from_node = [&](int other) {
    return landing + static_cast<std::size_t>(other) *
                         (size / static_cast<std::size_t>(n_nodes) / combine.unit * combine.unit +
                          combine.unit);
  };
  for (int i = 1; i < n_nodes; ++i) {
    const int other = (node + i) % n_nodes;
    const Slice theirs = slice_of(size, combine.unit, other, n_nodes);
    call.send(call.counterpart(me, other), from_node(node), partial + theirs.begin, theirs.size,
              true);
  }
  char* const result = at(dest, begin + mine.begin);
  std::vector<char> staged(call.parts.memory.on_gpu() ? mine.size : 0);
  char* const sum = staged.empty() ? result : staged.data();
  for (int other = 0; other < n_nodes; ++other) {
    if (other != node) call.wait_told(me, call.counterpart(me, other));
    const char* part = other == node ? partial + mine.begin : from_node(other);
    if (other == 0)
      std::memcpy(sum, part, mine.size);
    else
      combine(sum, part, mine.size);
  }
  if (sum != result) call.copy(result, sum, mine.size);
  for (int i = 1; i < n_nodes; ++i)
    call.send(call.counterpart(me, (node + i) % n_nodes), result, result, mine.size, false);
}

void reduce_large(CollectiveCall& call, void* dest, const void* source, std::size_t bytes,
                  const Reduction& combine) {
  Team& team = call.team;
  const int n_nodes = team.device().n_nodes;
  const int carriers = smallest_node(team);
  const int local = team.device().local;
  const auto& mates = team.nodes()[static_cast<std::size_t>(team.device().node)];
  // Between nodes the sums travel through the team's work area: half holds what this PE's node
  // makes, half what comes.
  auto* work = device::at_offset<char>(&call.parts.context, team.area().work);
  const std::size_t half = TeamArea::kWorkBytes / 2;
  const std::size_t margin = static_cast<std::size_t>(n_nodes) * combine.unit;
  const std::size_t chunk = n_nodes == 1 ? bytes
                                         : (half - margin) / combine.unit * combine.unit *
                                               static_cast<std::size_t>(carriers);
  for (std::size_t begin = 0; begin < bytes; begin += chunk) {
    const std::size_t size = std::min(chunk, bytes - begin);
    const auto part_of = [&](int carrier) {
      Slice part = slice_of(size, combine.unit, carrier, carriers);
      part.begin += begin;
      return part;
    };
    if (begin > 0) ++team.transfers;
    if (local < carriers) {
      const Slice part = part_of(local);
      reduce_node(call, n_nodes == 1 ? at(dest, part.begin) : work, source, part, combine);
      if (n_nodes > 1) reduce_nodes(call, dest, work, part.begin, part.size, work + half, combine);
    }
    call.meet();  // every slice is complete at its carrier; nobody reads this part of a source
                  // again
    for (int i = 0; i < carriers; ++i) {
      const int carrier = (local + i) % carriers;
      if (carrier == local) continue;
      const Slice part = part_of(carrier);
      char* to = at(dest, part.begin);
      call.copy(to, call.in(mates[static_cast<std::size_t>(carrier)], to), part.size);
    }
  }
}

}  // namespace

void reduce(Runtime& runtime, Team& team, void* dest, const void* source, std::size_t count,
            ElementType type, ReduceOp op) {
  CollectiveCall call(runtime, team, name_of(op));
  if (!supports(op, type))
    fail(ErrorKind::argument, name_of(op), ": not defined for ", name_of(type));
  const Reduction combine{op, type, size_of(type)};
  const std::size_t bytes = call.total(combine.unit, count);
  call.require_symmetric("dest", dest, bytes);
  call.require_symmetric("source", source, bytes);
  if (dest != source) call.require_apart(dest, bytes, source, bytes);
  call.begin("type, dest offset, source offset, elements", static_cast<int>(type),
             call.offset(dest), call.offset(source), count);
  if (is_small(team, bytes)) {
    alignas(16) char sum[kExchangeBytes];
    call.exchange(source, bytes, [&](int member, const char* data, std::size_t size) {
      if (member == 0)
        std::memcpy(sum, data, size);
      else
        combine(sum, data, size);
    });
    if (bytes > 0) call.copy(dest, sum, bytes);
    return;
  }
  reduce_large(call, dest, source, bytes, combine);
  call.end();
}

}  // namespace railshmem
