// Teams and contexts (OpenSHMEM 1.5, sections 9.4 and 9.5).
#include "shmem/api/teams.hpp"

#include <pybind11/stl.h>

#include "python/bindings/bindings.hpp"
#include "shmem/api/meetings.hpp"

namespace railshmem::python {

std::shared_ptr<Team> team_of(const Runtime& runtime, const char* call, py::handle team) {
  if (py::isinstance<Team>(team)) return py::cast<std::shared_ptr<Team>>(team);
  if (py::isinstance<Teams::Predefined>(team))
    return runtime.teams().predefined(py::cast<Teams::Predefined>(team));
  fail(ErrorKind::argument, call, ": team is ",
       team.is_none() ? std::string("None (SHMEM_TEAM_INVALID)")
                      : text("of type ", Py_TYPE(team.ptr())->tp_name),
       "; expected a team");
}

namespace {

// Null for SHMEM_TEAM_INVALID, for the calls that answer -1 then.
std::shared_ptr<Team> team_or_none(const Runtime& runtime, const char* call, py::handle team) {
  return team.is_none() ? nullptr : team_of(runtime, call, team);
}

int team_my_pe(Runtime& runtime, py::handle team) {
  const auto found = team_or_none(runtime, "shmem_team_my_pe", team);
  return found ? found->my_pe() : -1;
}

int team_n_pes(Runtime& runtime, py::handle team) {
  const auto found = team_or_none(runtime, "shmem_team_n_pes", team);
  return found ? found->n_pes() : -1;
}

TeamConfig team_get_config(Runtime& runtime, py::handle team) {
  return team_of(runtime, "shmem_team_get_config", team)->config();
}

int team_translate_pe(Runtime& runtime, py::handle src_team, long long src_pe,
                      py::handle dest_team) {
  const auto from = team_or_none(runtime, "shmem_team_translate_pe", src_team);
  const auto to = team_or_none(runtime, "shmem_team_translate_pe", dest_team);
  if (!from || !to || src_pe < 0 || src_pe >= from->n_pes()) return -1;
  return to->index_of(from->pes()[static_cast<std::size_t>(src_pe)]);
}

std::shared_ptr<Team> team_split_strided(Runtime& runtime, py::handle parent, int start, int stride,
                                         int size, const std::optional<TeamConfig>& config) {
  const auto from = team_of(runtime, "shmem_team_split_strided", parent);
  const HookScope released;
  return runtime.teams().split_strided(runtime.meetings(), *from, start, stride, size,
                                       config.value_or(TeamConfig{}));
}

std::pair<std::shared_ptr<Team>, std::shared_ptr<Team>> team_split_2d(
    Runtime& runtime, py::handle parent, int xrange, const std::optional<TeamConfig>& x,
    const std::optional<TeamConfig>& y) {
  const auto from = team_of(runtime, "shmem_team_split_2d", parent);
  const HookScope released;
  const Teams::Axes axes = runtime.teams().split_2d(
      runtime.meetings(), *from, xrange, x.value_or(TeamConfig{}), y.value_or(TeamConfig{}));
  return {axes.x, axes.y};
}

void team_destroy(Runtime& runtime, py::handle team) {
  const auto found = team_of(runtime, "shmem_team_destroy", team);
  const HookScope released;
  runtime.teams().destroy(runtime.meetings(), *found);
}

// ---- contexts ----

constexpr long kSerialized = 1;
constexpr long kPrivate = 2;
constexpr long kNoStore = 4;

ContextHandle make_context(const std::shared_ptr<Runtime>& runtime, std::shared_ptr<Team> team,
                           long options) {
  if ((options & ~(kSerialized | kPrivate | kNoStore)) != 0)
    fail(ErrorKind::argument, "shmem_ctx_create: options ", options,
         ": expected a sum of SHMEM_CTX_SERIALIZED, SHMEM_CTX_PRIVATE and SHMEM_CTX_NOSTORE");
  return {runtime, runtime->create_context(std::move(team))};
}

void destroy_context(ContextHandle& handle) {
  Context& context = handle.get("shmem_ctx_destroy");
  run(false, [&] { handle.runtime->destroy_context(context); });
  handle.context.reset();
}

std::shared_ptr<Runtime> default_runtime_shared() {
  default_runtime();  // says so where there is none
  return find_default_runtime();
}

}  // namespace

void bind_teams(py::module_& m) {
  py::enum_<Teams::Predefined>(m, "PredefinedTeam")
      .value("WORLD", Teams::kWorld)
      .value("SHARED", Teams::kShared)
      .value("NODE", Teams::kNode);
  py::class_<TeamConfig>(m, "TeamConfig", "shmem_team_config_t (OpenSHMEM 1.5, section 9.4.3).")
      .def(py::init([](int num_contexts) {
             if (num_contexts < 0)
               fail(ErrorKind::argument, "TeamConfig: num_contexts ", num_contexts, " is negative");
             return TeamConfig{num_contexts};
           }),
           py::arg("num_contexts") = 0)
      .def_readonly("num_contexts", &TeamConfig::num_contexts,
                    "Contexts that the caller means to make of the team; a hint.");
  py::class_<Team, std::shared_ptr<Team>>(m, "Team", "A set of PEs: shmem_team_t.")
      .def_property_readonly("my_pe", &Team::my_pe, "This PE's number in the team.")
      .def_property_readonly("n_pes", &Team::n_pes)
      .def_property_readonly("pes", &Team::pes, "The members' numbers in the job, in team order.")
      .def("__repr__", [](const Team& team) {
        return text("<Team of ", team.n_pes(), " PEs, this one is ", team.my_pe(), ">");
      });
  m.attr("Runtime").attr("world") =
      py::module_::import("builtins").attr("property")(py::cpp_function([](const Runtime& self) {
        return self.world();
      }));

  const auto team = py::arg("team");
  bind_job_operation(m, "team_my_pe", team_my_pe, team,
                     "This PE's number in the team; -1 for SHMEM_TEAM_INVALID. OpenSHMEM 1.5, "
                     "section 9.4.1.");
  bind_job_operation(m, "team_n_pes", team_n_pes, team,
                     "The number of PEs in the team; -1 for SHMEM_TEAM_INVALID. OpenSHMEM 1.5, "
                     "section 9.4.2.");
  bind_job_operation(m, "team_get_config", team_get_config, team,
                     "The TeamConfig that the team was made with. OpenSHMEM 1.5, section 9.4.4.");
  bind_job_operation(m, "team_translate_pe", team_translate_pe, py::arg("src_team"),
                     py::arg("src_pe"), py::arg("dest_team"),
                     "The number in dest_team of PE src_pe of src_team; -1 where it is no member. "
                     "OpenSHMEM 1.5,\n"
                     "section 9.4.5.");
  bind_job_operation(
      m, "team_split_strided", team_split_strided, py::arg("parent_team"), py::arg("start"),
      py::arg("stride"), py::arg("size"), py::kw_only(), py::arg("config") = py::none(),
      "Collective over parent_team: the team of its PEs start, start + stride, ..., `size` of "
      "them;\n"
      "SHMEM_TEAM_INVALID (None) where this PE is none of them. Raises ArgumentError on every "
      "member\n"
      "where the arguments are wrong or differ, or RAILSHMEM_TEAMS are in use. OpenSHMEM 1.5, "
      "section 9.4.6.");
  bind_job_operation(
      m, "team_split_2d", team_split_2d, py::arg("parent_team"), py::arg("xrange"), py::kw_only(),
      py::arg("xaxis_config") = py::none(), py::arg("yaxis_config") = py::none(),
      "Collective over parent_team, laid out in rows of xrange PEs: returns (row, column) of this "
      "PE.\n"
      "The last row, and the columns beyond it, may be short. OpenSHMEM 1.5, section 9.4.7.");
  bind_job_operation(m, "team_destroy", team_destroy, team,
                     "Collective over the team: gives its resources back. OpenSHMEM 1.5, section "
                     "9.4.8.");
}

void bind_contexts(py::module_& m) {
  py::class_<DefaultContext>(m, "DefaultContext", "The context of calls that name none.")
      .def("__repr__", [](const DefaultContext&) { return "SHMEM_CTX_DEFAULT"; });
  m.attr("SHMEM_CTX_DEFAULT") = DefaultContext{};
  ContextClass(m, "Context",
               "An independent stream of order: shmem_ctx_t. Every operation is a method, too.")
      .def("get_team",
           [](const ContextHandle& self) { return self.get("shmem_ctx_get_team").team(); })
      .def("destroy", &destroy_context, "Completes what was posted on it, and ends it.");

  const auto options = py::arg("options") = 0;
  const char* create_doc =
      "A further context over the PEs of the job: ordered and completed apart from all others. "
      "`options`\n"
      "is a sum of SHMEM_CTX_SERIALIZED, SHMEM_CTX_PRIVATE and SHMEM_CTX_NOSTORE, hints that "
      "change\n"
      "nothing here. Raises ArgumentError where RAILSHMEM_CONTEXTS are in use. OpenSHMEM 1.5, "
      "section 9.5.1.";
  const char* team_doc =
      "The same over the PEs of `team`, numbered as there. OpenSHMEM 1.5, section 9.5.2.";
  auto runtime = py::reinterpret_borrow<RuntimeClass>(m.attr("Runtime"));
  runtime.def(
      "ctx_create",
      [](const std::shared_ptr<Runtime>& self, long given) {
        return make_context(self, self->world(), given);
      },
      options, create_doc);
  runtime.def(
      "team_create_ctx",
      [](const std::shared_ptr<Runtime>& self, py::handle team, long given) {
        return make_context(self, team_of(*self, "shmem_team_create_ctx", team), given);
      },
      py::arg("team"), options, team_doc);
  m.def(
      "shmem_ctx_create",
      [](long given) {
        const auto self = default_runtime_shared();
        return make_context(self, self->world(), given);
      },
      options, create_doc);
  m.def(
      "shmem_team_create_ctx",
      [](py::handle team, long given) {
        const auto self = default_runtime_shared();
        return make_context(self, team_of(*self, "shmem_team_create_ctx", team), given);
      },
      py::arg("team"), options, team_doc);
  m.def("shmem_ctx_destroy", &destroy_context, py::arg("ctx"),
        "Completes what was posted on the context, and ends it. OpenSHMEM 1.5, section 9.5.3.");
  m.def(
      "shmem_ctx_get_team",
      [](const py::object& ctx) -> std::shared_ptr<Team> {
        if (ctx.is_none()) return nullptr;
        if (py::isinstance<DefaultContext>(ctx)) return default_runtime().world();
        return py::cast<const ContextHandle&>(ctx).get("shmem_ctx_get_team").team();
      },
      py::arg("ctx"),
      "The team of the context; SHMEM_TEAM_INVALID (None) for SHMEM_CTX_INVALID (None). "
      "OpenSHMEM 1.5,\n"
      "section 9.5.4.");
}

}  // namespace railshmem::python
