// Collectives on numpy arrays (OpenSHMEM 1.5, section 9.9).
#include "shmem/api/collectives.hpp"

#include "python/bindings/array_view.hpp"

namespace railshmem::python {
namespace {

// The arrays of a collective, and how many elements of source take part: `nelems`, by default all
// of source divided by `parts`.
struct Arrays {
  const ArrayView to;
  const ArrayView from;
  std::size_t item;
  std::size_t nelems;

  Arrays(const char* call, py::handle dest, py::handle source, py::handle given,
         std::size_t parts = 1)
      : to(dest, call, "dest", true), from(source, call, "source", false) {
    common_bytes(call, to, from, from, py::int_(0));  // the dtypes
    item = to.typed() ? to.item_bytes() : from.item_bytes();
    nelems = from.size() * from.item_bytes() / item / parts;
    if (!given.is_none()) {
      const auto count = py::cast<long long>(given);
      if (count < 0) fail(ErrorKind::argument, call, ": nelems ", count, " is negative");
      nelems = static_cast<std::size_t>(count);
    }
  }

  // Elements that `blocks` blocks of `nelems`, `stride` apart, take.
  void require(const char* call, const ArrayView& view, const char* name, std::size_t blocks,
               std::size_t stride = 1) const {
    const std::size_t have = view.size() * view.item_bytes() / item;
    if (nelems > have / blocks / stride)
      fail(ErrorKind::argument, call, ": ", blocks, " times ", nelems, " elements of ", item,
           " bytes", stride > 1 ? text(", ", stride, " apart,") : std::string(), " do not fit ",
           name, ", which has ", view.describe());
  }
};

std::size_t members(const Team& team) {
  return static_cast<std::size_t>(team.n_pes());
}

void barrier_all(Runtime& runtime) {
  run(false, [&] { runtime.barrier_all(); });
}

void sync_all(Runtime& runtime) {
  run(false, [&] { runtime.sync_all(); });
}

void sync_of_team(Runtime& runtime, py::handle team) {
  const auto on = team_of(runtime, "shmem_team_sync", team);
  run(false, [&] { team_sync(runtime, *on); });
}

void broadcast_arrays(Runtime& runtime, py::handle team, py::handle dest, py::handle source,
                      long long root, py::handle nelems) {
  constexpr const char* kCall = "shmem_broadcast";
  const auto on = team_of(runtime, kCall, team);
  const Arrays arrays(kCall, dest, source, nelems);
  arrays.require(kCall, arrays.to, "dest", 1);
  arrays.require(kCall, arrays.from, "source", 1);
  run(false, [&] {
    broadcast(runtime, *on, arrays.to.data(), arrays.from.data(), arrays.nelems * arrays.item,
              pe_of(root));
  });
}

void fcollect_arrays(Runtime& runtime, py::handle team, py::handle dest, py::handle source,
                     py::handle nelems) {
  constexpr const char* kCall = "shmem_fcollect";
  const auto on = team_of(runtime, kCall, team);
  const Arrays arrays(kCall, dest, source, nelems);
  arrays.require(kCall, arrays.to, "dest", members(*on));
  arrays.require(kCall, arrays.from, "source", 1);
  run(false, [&] {
    fcollect(runtime, *on, arrays.to.data(), arrays.from.data(), arrays.nelems * arrays.item);
  });
}

void collect_arrays(Runtime& runtime, py::handle team, py::handle dest, py::handle source,
                    py::handle nelems) {
  constexpr const char* kCall = "shmem_collect";
  const auto on = team_of(runtime, kCall, team);
  const Arrays arrays(kCall, dest, source, nelems);
  arrays.require(kCall, arrays.from, "source", 1);
  run(false, [&] {
    collect(runtime, *on, arrays.to.data(), arrays.to.size() * arrays.to.item_bytes(),
            arrays.from.data(), arrays.nelems * arrays.item);
  });
}

void alltoall_arrays(Runtime& runtime, py::handle team, py::handle dest, py::handle source,
                     py::handle nelems) {
  constexpr const char* kCall = "shmem_alltoall";
  const auto on = team_of(runtime, kCall, team);
  const Arrays arrays(kCall, dest, source, nelems, members(*on));
  arrays.require(kCall, arrays.to, "dest", members(*on));
  arrays.require(kCall, arrays.from, "source", members(*on));
  run(false, [&] {
    alltoall(runtime, *on, arrays.to.data(), arrays.from.data(), arrays.nelems * arrays.item);
  });
}

void alltoalls_arrays(Runtime& runtime, py::handle team, py::handle dest, py::handle source,
                      long long dst, long long sst, py::handle nelems) {
  constexpr const char* kCall = "shmem_alltoalls";
  const auto on = team_of(runtime, kCall, team);
  const Arrays arrays(kCall, dest, source, nelems, members(*on));
  if (dst < 1 || sst < 1)
    fail(ErrorKind::argument, kCall, ": strides dst ", dst, " and sst ", sst,
         ": expected at least 1");
  arrays.require(kCall, arrays.to, "dest", members(*on), static_cast<std::size_t>(dst));
  arrays.require(kCall, arrays.from, "source", members(*on), static_cast<std::size_t>(sst));
  run(false, [&] {
    alltoalls(runtime, *on, arrays.to.data(), arrays.from.data(), dst, sst, arrays.nelems,
              arrays.item);
  });
}

// The type of that kind and size; numpy's names are asked only for what it does not know itself.
ElementType element_of(const char* call, const ArrayView& view) {
  const std::size_t size = view.item_bytes();
  const auto integer = [&](ElementType first) {
    const int power = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
    return static_cast<ElementType>(static_cast<int>(first) + power);
  };
  const char kind = view.typed() && view.dtype().byteorder() != '>' ? view.dtype().kind() : '?';
  if (kind == 'i') return integer(ElementType::int8);
  if (kind == 'u') return integer(ElementType::uint8);
  if (kind == 'f' && size == 2) return ElementType::float16;
  if (kind == 'f' && size == 4) return ElementType::float32;
  if (kind == 'f' && size == 8) return ElementType::float64;
  if (kind == 'f' && size == sizeof(long double)) return ElementType::long_double;
  if (kind == 'c' && size == 8) return ElementType::complex64;
  if (kind == 'c' && size == 16) return ElementType::complex128;
  const std::string name = view.typed() ? std::string(py::str(view.dtype())) : "bytes";
  if (name == name_of(ElementType::bfloat16)) return ElementType::bfloat16;
  fail(ErrorKind::argument, call, ": elements of ", name,
       " cannot be reduced; expected integers, floats or complex numbers");
}

struct Reduce {
  const char* name;
  ReduceOp op;
  const char* doc;
};
constexpr Reduce kReductions[] = {
    {"and_reduce", ReduceOp::bit_and, "the bitwise and; integers."},
    {"or_reduce", ReduceOp::bit_or, "the bitwise or; integers."},
    {"xor_reduce", ReduceOp::bit_xor, "the bitwise exclusive or; integers."},
    {"max_reduce", ReduceOp::max, "the greatest; integers and floats, a NaN wins."},
    {"min_reduce", ReduceOp::min, "the least; integers and floats, a NaN wins."},
    {"sum_reduce", ReduceOp::sum,
     "the sum; integers (which wrap), floats (16-bit ones are added in float32), complex numbers."},
    {"prod_reduce", ReduceOp::prod, "the product; types as for shmem_sum_reduce."},
};

void reduce_arrays(Runtime& runtime, const Reduce& reduction, py::handle team, py::handle dest,
                   py::handle source, py::handle nreduce) {
  const char* call = name_of(reduction.op);
  const auto on = team_of(runtime, call, team);
  const Arrays arrays(call, dest, source, nreduce);
  arrays.require(call, arrays.to, "dest", 1);
  arrays.require(call, arrays.from, "source", 1);
  const ElementType type = element_of(call, arrays.to);
  run(false, [&] {
    reduce(runtime, *on, arrays.to.data(), arrays.from.data(), arrays.nelems, type, reduction.op);
  });
}

}  // namespace

void bind_collectives(py::module_& m) {
  const auto team = py::arg("team");
  const auto dest = py::arg("dest");
  const auto source = py::arg("source");
  const auto nelems = py::arg("nelems") = py::none();
  static constexpr const char* kAll =
      "\nCollective over the team; dest and source are symmetric, of one dtype, and do not "
      "overlap. "
      "Raises\n"
      "ArgumentError, on every member where the arguments differ. OpenSHMEM 1.5, section 9.9.";
  const auto doc = [](const std::string& what, int section) {
    return text(what, kAll, section, ".");
  };
  bind_job_operation(
      m, "barrier_all", barrier_all,
      "Collective: quiet on the default context, then waits for every PE. Raises ArgumentError on "
      "all PEs\n"
      "where they are in different collective calls. OpenSHMEM 1.5, section 9.9.1.");
  bind_job_operation(
      m, "sync_all", sync_all,
      "Collective: waits for every PE, without quiet. OpenSHMEM 1.5, section 9.9.4.");
  bind_job_operation(m, "team_sync", sync_of_team, team,
                     "Collective over the team: waits for every member, without quiet. OpenSHMEM "
                     "1.5, section 9.9.3.");
  bind_job_operation(m, "sync", sync_of_team, team,
                     "shmem_team_sync by its other name. OpenSHMEM 1.5, section 9.9.3.");
  bind_job_operation(
      m, "broadcast", broadcast_arrays, team, dest, source, py::arg("PE_root"), py::kw_only(),
      nelems,
      doc("dest = the first `nelems` elements (default: all) of source of member PE_root, also "
          "there.",
          7)
          .c_str());
  bind_job_operation(m, "fcollect", fcollect_arrays, team, dest, source, py::kw_only(), nelems,
                     doc("dest [n_pes * nelems] = the first `nelems` elements (default: all) of "
                         "every source, in team order.",
                         8)
                         .c_str());
  bind_job_operation(
      m, "collect", collect_arrays, team, dest, source, py::kw_only(), nelems,
      doc("shmem_fcollect where `nelems` may differ from member to member. Raises ArgumentError on "
          "every\n"
          "member where some dest has no room for all.",
          8)
          .c_str());
  bind_job_operation(m, "alltoall", alltoall_arrays, team, dest, source, py::kw_only(), nelems,
                     doc("Block j of member i goes to block i of member j; blocks have `nelems` "
                         "elements (default: "
                         "all\n"
                         "of source divided by the members).",
                         5)
                         .c_str());
  bind_job_operation(m, "alltoalls", alltoalls_arrays, team, dest, source, py::arg("dst"),
                     py::arg("sst"), py::arg("nelems"),
                     doc("shmem_alltoall of elements that lie `sst` apart in source and `dst` "
                         "apart in dest.",
                         6)
                         .c_str());
  auto runtime = py::reinterpret_borrow<RuntimeClass>(m.attr("Runtime"));
  for (const Reduce& row : kReductions) {
    const auto nreduce = py::arg("nreduce") = py::none();
    const std::string meaning = doc(text("dest[i] = over all members' source[i], ", row.doc,
                                         " dest may be source. The same\nbits on every member."),
                                    9);
    runtime.def(
        row.name,
        [&row](Runtime& self, py::handle on, py::handle to, py::handle from, py::handle count) {
          reduce_arrays(self, row, on, to, from, count);
        },
        team, dest, source, py::kw_only(), nreduce, meaning.c_str());
    m.def(
        name_of(row.op),
        [&row](py::handle on, py::handle to, py::handle from, py::handle count) {
          reduce_arrays(default_runtime(), row, on, to, from, count);
        },
        team, dest, source, py::kw_only(), nreduce, meaning.c_str());
  }
}

}  // namespace railshmem::python
