#include "shmem/api/teams.hpp"

#include <algorithm>
#include <cstring>

#include "shmem/api/meetings.hpp"
#include "shmem/base/error.hpp"

namespace railshmem {
namespace {

// Slots beyond this one cannot be told in the record below.
constexpr uint32_t kMostSlots = 1024;

struct SlotRecord {
  uint64_t highest;
  uint64_t used[kMostSlots / 64];
};
static_assert(sizeof(SlotRecord) <= kExchangeBytes, "a record travels in one exchange");

}  // namespace

void Teams::start(int me, const Topology& topology) {
  me_ = me;
  topology_ = &topology;
  slots_.resize(n_slots_);
  std::vector<int> world;
  std::vector<int> host;
  for (int pe = 0; pe < topology.n_pes(); ++pe) {
    world.push_back(pe);
    const PeFacts& mine = topology.facts(me);
    const PeFacts& other = topology.facts(pe);
    if (other.boot_id == mine.boot_id && other.emulated_node == mine.emulated_node)
      host.push_back(pe);
  }
  make({kWorld, 0}, std::move(world), {});
  make({kShared, 0}, topology.members(topology.node(me)), {});
  make({kNode, 0}, std::move(host), {});
}

std::shared_ptr<Team> Teams::make(const Slot& slot, std::vector<int> pes, TeamConfig config) {
  const TeamArea area = TeamArea::at(
      offset_ + static_cast<uint64_t>(slot.index) * TeamArea::bytes(topology_->n_pes()),
      topology_->n_pes());
  auto team =
      std::make_shared<Team>(slot.index, area, std::move(pes), me_, *topology_, slot.start, config);
  const std::lock_guard<std::mutex> held(mutex_);
  slots_[static_cast<std::size_t>(slot.index)] = team;
  return team;
}

// Every member of the parent comes, also those that will not be in the new team: the slot must be
// free on all, because each keeps one set of words per slot.
Teams::Slot Teams::agree_on_slot(Meetings& meetings, Team& parent, const char* call) {
  SlotRecord all = {};
  {
    const std::lock_guard<std::mutex> held(mutex_);
    all.highest = highest_;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
      if (slots_[slot]) {
        all.used[slot / 64] |= uint64_t{1} << slot % 64;
        all.highest = std::max(all.highest, slots_[slot]->last_number());
      }
  }
  meetings.merge(parent, &all, sizeof all, [&](const char* data) {
    SlotRecord other;
    std::memcpy(&other, data, sizeof other);
    all.highest = std::max(all.highest, other.highest);
    for (std::size_t word = 0; word < std::size(all.used); ++word)
      all.used[word] |= other.used[word];
  });
  for (std::size_t slot = kFirstFree; slot < slots_.size(); ++slot)
    if ((all.used[slot / 64] >> slot % 64 & 1) == 0)
      return {static_cast<int>(slot), all.highest + 1};
  fail(ErrorKind::argument, call, ": all ", n_slots_,
       " teams are in use on some PE; destroy one or raise RAILSHMEM_TEAMS");
}

std::shared_ptr<Team> Teams::split_strided(Meetings& meetings, Team& parent, int start, int stride,
                                           int size, TeamConfig config) {
  // Agreed first: a PE that raised alone would leave the others waiting.
  meetings.agree(parent, hash_of_numbers('s', start, stride, size), [&] {
    return text("shmem_team_split_strided of start ", start, ", stride ", stride, ", size ", size);
  });
  const long long last = start + static_cast<long long>(stride) * (size - 1);
  if (size < 1 || start < 0 || start >= parent.n_pes() || last < 0 || last >= parent.n_pes() ||
      (stride == 0 && size > 1))
    fail(ErrorKind::argument, "shmem_team_split_strided: start ", start, ", stride ", stride,
         ", size ", size, " do not name ", size, " different PEs of a team of ", parent.n_pes());
  std::vector<int> pes;
  for (int i = 0; i < size; ++i)
    pes.push_back(parent.pes()[static_cast<std::size_t>(start + stride * i)]);
  const Slot slot = agree_on_slot(meetings, parent, "shmem_team_split_strided");
  if (std::find(pes.begin(), pes.end(), me_) == pes.end()) return nullptr;
  return make(slot, std::move(pes), config);
}

Teams::Axes Teams::split_2d(Meetings& meetings, Team& parent, int xrange, TeamConfig x,
                            TeamConfig y) {
  meetings.agree(parent, hash_of_numbers('2', xrange),
                 [&] { return text("shmem_team_split_2d of xrange ", xrange); });
  if (xrange < 1) fail(ErrorKind::argument, "shmem_team_split_2d: xrange ", xrange, " is below 1");
  const int n = parent.n_pes();
  const int width = std::min(xrange, n);
  const int row = parent.my_pe() / width;
  const int column = parent.my_pe() % width;
  std::vector<int> along_x;
  std::vector<int> along_y;
  for (int member = 0; member < n; ++member) {
    const int pe = parent.pes()[static_cast<std::size_t>(member)];
    if (member / width == row) along_x.push_back(pe);
    if (member % width == column) along_y.push_back(pe);
  }
  Axes axes;
  // Rows are disjoint, and so are columns: one slot serves all of a kind.
  axes.x = make(agree_on_slot(meetings, parent, "shmem_team_split_2d"), std::move(along_x), x);
  try {
    axes.y = make(agree_on_slot(meetings, parent, "shmem_team_split_2d"), std::move(along_y), y);
  } catch (...) {  // all or nothing
    const std::lock_guard<std::mutex> held(mutex_);
    slots_[static_cast<std::size_t>(axes.x->slot())].reset();
    throw;
  }
  return axes;
}

void Teams::destroy(Meetings& meetings, Team& team) {
  if (team.slot() < kFirstFree)
    fail(ErrorKind::argument, "shmem_team_destroy: a predefined team cannot be destroyed");
  if (team.destroyed)
    fail(ErrorKind::argument, "shmem_team_destroy: the team is destroyed already");
  // Whoever leaves this meeting has all that was sent to it: no late word can meet a later team.
  team.broken = false;
  meetings.sync(team);
  const std::lock_guard<std::mutex> held(mutex_);
  team.destroyed = true;
  highest_ = std::max(highest_, team.last_number());
  slots_[static_cast<std::size_t>(team.slot())].reset();
}

}  // namespace railshmem
