// Teams (9.4).
#pragma once

#include <memory>

#include "shmem/api/default_runtime.hpp"
#include "shmem/api/meetings.hpp"
#include "shmem/api/teams.hpp"

namespace railshmem {

using shmem_team_t = std::shared_ptr<Team>;
using shmem_team_config_t = TeamConfig;

constexpr long SHMEM_TEAM_NUM_CONTEXTS = 1;

// Stands for a team that exists from shmem_init to shmem_finalize.
template <Teams::Predefined Which>
struct PredefinedTeam {
  operator shmem_team_t() const { return default_runtime().teams().predefined(Which); }
};
// All PEs; the PEs whose memory is mapped here; the PEs of this host (an extension).
inline constexpr PredefinedTeam<Teams::kWorld> SHMEM_TEAM_WORLD;
inline constexpr PredefinedTeam<Teams::kShared> SHMEM_TEAM_SHARED;
inline constexpr PredefinedTeam<Teams::kNode> SHMEM_TEAM_NODE;
inline const shmem_team_t SHMEM_TEAM_INVALID;

namespace detail {
inline Team& team_of(const char* call, const shmem_team_t& team) {
  if (!team) fail(ErrorKind::argument, call, ": SHMEM_TEAM_INVALID");
  return *team;
}
}  // namespace detail

// -1 for SHMEM_TEAM_INVALID.
inline int shmem_team_my_pe(const shmem_team_t& team) {
  return team ? team->my_pe() : -1;
}
inline int shmem_team_n_pes(const shmem_team_t& team) {
  return team ? team->n_pes() : -1;
}
// Fills what `mask` names; returns 0, or -1 for SHMEM_TEAM_INVALID.
inline int shmem_team_get_config(const shmem_team_t& team, long mask, shmem_team_config_t* config) {
  if (!team) return -1;
  if ((mask & SHMEM_TEAM_NUM_CONTEXTS) != 0) config->num_contexts = team->config().num_contexts;
  return 0;
}
// The number in `to` of `pe` of `from`; -1 where it is no member, or a team is invalid.
inline int shmem_team_translate_pe(const shmem_team_t& from, int pe, const shmem_team_t& to) {
  if (!from || !to || pe < 0 || pe >= from->n_pes()) return -1;
  return to->index_of(from->pes()[static_cast<std::size_t>(pe)]);
}
// Collective over `parent`: `*team` is the members start, start + stride, ... of it, or
// SHMEM_TEAM_INVALID where this PE is none of them. Returns 0.
inline int shmem_team_split_strided(const shmem_team_t& parent, int start, int stride, int size,
                                    const shmem_team_config_t* config, long mask,
                                    shmem_team_t* team) {
  Runtime& runtime = default_runtime();
  TeamConfig chosen;
  if (config != nullptr && (mask & SHMEM_TEAM_NUM_CONTEXTS) != 0) chosen = *config;
  *team = runtime.teams().split_strided(runtime.meetings(),
                                        detail::team_of("shmem_team_split_strided", parent), start,
                                        stride, size, chosen);
  return 0;
}
// Collective over `parent`: the row and the column of this PE in rows of `xrange` PEs. Returns 0.
inline int shmem_team_split_2d(const shmem_team_t& parent, int xrange,
                               const shmem_team_config_t* xaxis_config, long xaxis_mask,
                               shmem_team_t* xaxis_team, const shmem_team_config_t* yaxis_config,
                               long yaxis_mask, shmem_team_t* yaxis_team) {
  Runtime& runtime = default_runtime();
  TeamConfig x;
  TeamConfig y;
  if (xaxis_config != nullptr && (xaxis_mask & SHMEM_TEAM_NUM_CONTEXTS) != 0) x = *xaxis_config;
  if (yaxis_config != nullptr && (yaxis_mask & SHMEM_TEAM_NUM_CONTEXTS) != 0) y = *yaxis_config;
  const Teams::Axes axes = runtime.teams().split_2d(
      runtime.meetings(), detail::team_of("shmem_team_split_2d", parent), xrange, x, y);
  *xaxis_team = axes.x;
  *yaxis_team = axes.y;
  return 0;
}
// Collective over `team`.
inline void shmem_team_destroy(const shmem_team_t& team) {
  Runtime& runtime = default_runtime();
  runtime.teams().destroy(runtime.meetings(), detail::team_of("shmem_team_destroy", team));
}

}  // namespace railshmem
