// Communication contexts (9.5): independent streams of order.
#pragma once

#include <memory>

#include "shmem/api/context.hpp"
#include "shmem/api/default_runtime.hpp"
#include "shmem/include/railshmem/teams.hpp"

namespace railshmem {

using shmem_ctx_t = std::shared_ptr<Context>;

// Hints; every context may be used by any thread and for any operation.
constexpr long SHMEM_CTX_SERIALIZED = 1;
constexpr long SHMEM_CTX_PRIVATE = 2;
constexpr long SHMEM_CTX_NOSTORE = 4;

inline const shmem_ctx_t SHMEM_CTX_INVALID;

// Stands for the context that exists from shmem_init to shmem_finalize.
struct DefaultContext {};
inline constexpr DefaultContext SHMEM_CTX_DEFAULT;

namespace detail {
inline Context& context_of(DefaultContext) {
  return default_runtime().default_context();
}
inline Context& context_of(const shmem_ctx_t& ctx) {
  if (!ctx) fail(ErrorKind::argument, "SHMEM_CTX_INVALID names no context");
  return *ctx;
}

// What may stand where an operation takes a context.
template <class C>
using IfContext = std::enable_if_t<std::is_same_v<C, DefaultContext> ||
                                   std::is_convertible_v<const C&, const shmem_ctx_t&>>;
}  // namespace detail

// Over the PEs of `team`. Returns 0; throws where RAILSHMEM_CONTEXTS are in use.
inline int shmem_team_create_ctx(const shmem_team_t& team, long options, shmem_ctx_t* ctx) {
  if ((options & ~(SHMEM_CTX_SERIALIZED | SHMEM_CTX_PRIVATE | SHMEM_CTX_NOSTORE)) != 0)
    fail(ErrorKind::argument, "shmem_team_create_ctx: unknown options ", options);
  detail::team_of("shmem_team_create_ctx", team);
  *ctx = default_runtime().create_context(team);
  return 0;
}
inline int shmem_ctx_create(long options, shmem_ctx_t* ctx) {
  return shmem_team_create_ctx(SHMEM_TEAM_WORLD, options, ctx);
}
// Completes what was posted on it.
inline void shmem_ctx_destroy(const shmem_ctx_t& ctx) {
  if (ctx) default_runtime().destroy_context(*ctx);
}
inline int shmem_ctx_get_team(const shmem_ctx_t& ctx, shmem_team_t* team) {
  *team = ctx ? ctx->team() : SHMEM_TEAM_INVALID;
  return ctx ? 0 : -1;
}
inline int shmem_ctx_get_team(DefaultContext, shmem_team_t* team) {
  *team = SHMEM_TEAM_WORLD;
  return 0;
}

}  // namespace railshmem
