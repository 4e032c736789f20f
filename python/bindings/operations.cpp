// The OpenSHMEM operations on numpy arrays: as functions on the default runtime (shmem_put) and as
// methods of a runtime (put). Both forms are the same C++ function.
#include <functional>

#include "python/bindings/array_view.hpp"
#include "shmem/api/default_runtime.hpp"

namespace railshmem::python {
namespace {

using device::AtomicOp;
using device::Compare;
using device::Transport;

// Copies between mapped memory never wait; up to this size they are over before another thread
// would have got the interpreter.
constexpr std::size_t kBrief = 256 * 1024;

bool is_brief(const Runtime& runtime, long long pe, std::size_t bytes) {
  return bytes <= kBrief && pe >= 0 && pe < runtime.n_pes() &&
         runtime.context().transport[pe] == Transport::p2p;
}

template <class Call>
void run(bool brief, const Call& call) {
  if (brief) return call();
  const HookScope released;
  call();
}

int pe_of(long long pe) {
  // Out of int's range is out of the job's range: let the runtime say so.
  return pe < INT32_MIN || pe > INT32_MAX ? -1 : static_cast<int>(pe);
}

void put(Runtime& runtime, py::handle dest, py::handle source, long long pe, py::handle nelems) {
  const ArrayView to(dest, "shmem_put", "dest", true);
  const ArrayView from(source, "shmem_put", "source", false);
  const std::size_t bytes = common_bytes("shmem_put", to, from, from, nelems);
  run(is_brief(runtime, pe, bytes), [&] { runtime.put(to.data(), from.data(), bytes, pe_of(pe)); });
}

void get(Runtime& runtime, py::handle dest, py::handle source, long long pe, py::handle nelems) {
  const ArrayView to(dest, "shmem_get", "dest", true);
  const ArrayView from(source, "shmem_get", "source", false);
  const std::size_t bytes = common_bytes("shmem_get", to, from, to, nelems);
  run(is_brief(runtime, pe, bytes), [&] { runtime.get(to.data(), from.data(), bytes, pe_of(pe)); });
}

void put_signal(Runtime& runtime, py::handle dest, py::handle source, py::handle signal,
                uint64_t value, AtomicOp op, long long pe, py::handle nelems) {
  const ArrayView to(dest, "shmem_put_signal", "dest", true);
  const ArrayView from(source, "shmem_put_signal", "source", false);
  const Word word = word_of(signal, "shmem_put_signal", "signal", false);
  if (word.width != 8 || word.kind != 'u')
    fail(ErrorKind::argument, "shmem_put_signal: signal is an integer of ", word.width * 8,
         " bits, kind '", word.kind, "'; expected uint64");
  const std::size_t bytes = common_bytes("shmem_put_signal", to, from, from, nelems);
  run(false, [&] {
    runtime.put_signal(to.data(), from.data(), bytes, static_cast<uint64_t*>(word.address), value,
                       op, pe_of(pe));
  });
}

py::object atomic_fetch(Runtime& runtime, const char* call, AtomicOp op, bool allow_float,
                        py::handle dest, py::handle value, py::handle condition, long long pe) {
  const Word word = word_of(dest, call, "dest", allow_float);
  const uint64_t operand = value ? bits_of(value, word, call, "value") : 0;
  const uint64_t compare = condition ? bits_of(condition, word, call, "cond") : 0;
  uint64_t old = 0;
  run(!runtime.context().atomics_posted, [&] {
    old = runtime.atomic_fetch(op, word.address, word.width, operand, compare, pe_of(pe));
  });
  return number_of(old, word);
}

void atomic_update(Runtime& runtime, const char* call, AtomicOp op, bool allow_float,
                   py::handle dest, py::handle value, long long pe) {
  const Word word = word_of(dest, call, "dest", allow_float);
  const uint64_t operand = bits_of(value, word, call, "value");
  run(!runtime.context().atomics_posted,
      [&] { runtime.atomic_update(op, word.address, word.width, operand, pe_of(pe)); });
}

py::object wait_until(Runtime& runtime, py::handle ivar, Compare compare, py::handle value) {
  const Word word = word_of(ivar, "shmem_wait_until", "ivar", false);
  const uint64_t expected = bits_of(value, word, "shmem_wait_until", "cmp_value");
  int64_t seen = 0;
  run(false, [&] {
    seen = runtime.wait_until(word.address, word.width, word.kind == 'i', compare,
                              static_cast<int64_t>(expected));
  });
  return number_of(static_cast<uint64_t>(seen), word);
}

uint64_t signal_wait_until(Runtime& runtime, py::handle signal, Compare compare, uint64_t value) {
  const Word word = word_of(signal, "shmem_signal_wait_until", "sig_addr", false);
  if (word.width != 8 || word.kind != 'u')
    fail(ErrorKind::argument, "shmem_signal_wait_until: sig_addr is not an array of uint64");
  uint64_t seen = 0;
  run(false, [&] {
    seen = runtime.signal_wait_until(static_cast<const uint64_t*>(word.address), compare, value);
  });
  return seen;
}

// ---- binding both forms
// ----------------------------------------------------------------------------

using RuntimeClass = py::class_<Runtime, std::shared_ptr<Runtime>>;

// `function` takes a Runtime& first; it becomes shmem_<name> and Runtime.<name>.
template <class... Args, class Result, class... Extra>
void both(py::module_& m, RuntimeClass& cls, const std::string& name,
          Result (*function)(Runtime&, Args...), const Extra&... extra) {
  cls.def(name.c_str(), function, extra...);
  m.def(("shmem_" + name).c_str(),
        [function](Args... args) { return function(default_runtime(), args...); }, extra...);
}

struct AtomicName {
  const char* name;
  AtomicOp op;
  bool allow_float;
  const char* doc;
};

void bind_atomics(py::module_& m, RuntimeClass& cls) {
  static constexpr AtomicName updates[] = {
      {"shmem_atomic_set", AtomicOp::set, true, "dest[0] on `pe` = value, atomically."},
      {"shmem_atomic_add", AtomicOp::add, false, "dest[0] on `pe` += value, atomically."},
      {"shmem_atomic_and", AtomicOp::bit_and, false, "dest[0] on `pe` &= value, atomically."},
      {"shmem_atomic_or", AtomicOp::bit_or, false, "dest[0] on `pe` |= value, atomically."},
      {"shmem_atomic_xor", AtomicOp::bit_xor, false, "dest[0] on `pe` ^= value, atomically."},
  };
  static constexpr AtomicName fetches[] = {
      {"shmem_atomic_swap", AtomicOp::swap, true,
       "dest[0] on `pe` = value; returns the old value."},
      {"shmem_atomic_fetch_add", AtomicOp::add, false,
       "dest[0] on `pe` += value; returns the old value."},
      {"shmem_atomic_fetch_and", AtomicOp::bit_and, false,
       "dest[0] on `pe` &= value; returns the old value."},
      {"shmem_atomic_fetch_or", AtomicOp::bit_or, false,
       "dest[0] on `pe` |= value; returns the old value."},
      {"shmem_atomic_fetch_xor", AtomicOp::bit_xor, false,
       "dest[0] on `pe` ^= value; returns the old value."},
  };
  // Each call is a closure over its row, so that errors name the call the user made.
  const auto define = [&](const char* name, const auto& method, const auto&... extra) {
    cls.def(name + sizeof("shmem_") - 1, method, extra...);
    m.def(
        name,
        [method](py::handle dest, py::handle value, long long pe) {
          return method(default_runtime(), dest, value, pe);
        },
        extra...);
  };
  for (const AtomicName& row : updates)
    define(
        row.name,
        [&row](Runtime& runtime, py::handle dest, py::handle value, long long pe) {
          atomic_update(runtime, row.name, row.op, row.allow_float, dest, value, pe);
        },
        py::arg("dest"), py::arg("value"), py::arg("pe"), row.doc);
  for (const AtomicName& row : fetches)
    define(
        row.name,
        [&row](Runtime& runtime, py::handle dest, py::handle value, long long pe) {
          return atomic_fetch(runtime, row.name, row.op, row.allow_float, dest, value, py::handle(),
                              pe);
        },
        py::arg("dest"), py::arg("value"), py::arg("pe"), row.doc);

  both(
      m, cls, "atomic_fetch",
      +[](Runtime& runtime, py::handle source, long long pe) {
        return atomic_fetch(runtime, "shmem_atomic_fetch", AtomicOp::fetch, true, source,
                            py::handle(), py::handle(), pe);
      },
      py::arg("source"), py::arg("pe"), "Returns source[0] of `pe`, read atomically.");
  both(
      m, cls, "atomic_compare_swap",
      +[](Runtime& runtime, py::handle dest, py::handle cond, py::handle value, long long pe) {
        return atomic_fetch(runtime, "shmem_atomic_compare_swap", AtomicOp::compare_swap, false,
                            dest, value, cond, pe);
      },
      py::arg("dest"), py::arg("cond"), py::arg("value"), py::arg("pe"),
      "dest[0] on `pe` = value if it equals cond; returns the old value.");
  both(
      m, cls, "atomic_inc",
      +[](Runtime& runtime, py::handle dest, long long pe) {
        atomic_update(runtime, "shmem_atomic_inc", AtomicOp::add, false, dest, py::int_(1), pe);
      },
      py::arg("dest"), py::arg("pe"), "dest[0] on `pe` += 1, atomically.");
  both(
      m, cls, "atomic_fetch_inc",
      +[](Runtime& runtime, py::handle dest, long long pe) {
        return atomic_fetch(runtime, "shmem_atomic_fetch_inc", AtomicOp::add, false, dest,
                            py::int_(1), py::handle(), pe);
      },
      py::arg("dest"), py::arg("pe"), "dest[0] on `pe` += 1; returns the old value.");
}

}  // namespace

void bind_operations(py::module_& m) {
  py::enum_<Compare>(m, "Compare")
      .value("EQ", Compare::equal)
      .value("NE", Compare::not_equal)
      .value("GT", Compare::greater)
      .value("GE", Compare::greater_equal)
      .value("LT", Compare::less)
      .value("LE", Compare::less_equal);
  py::enum_<AtomicOp>(m, "SignalOp").value("SET", AtomicOp::set).value("ADD", AtomicOp::add);

  m.def("set_default", &set_default_runtime);
  m.def("get_default", &find_default_runtime);

  auto cls = py::reinterpret_borrow<RuntimeClass>(m.attr("Runtime"));
  both(m, cls, "put", put, py::arg("dest"), py::arg("source"), py::arg("pe"), py::kw_only(),
       py::arg("nelems") = py::none(),
       "Copies `nelems` elements (default: all of source) from local `source` to the symmetric "
       "`dest`\n"
       "on PE `pe`. Returns when `source` may be reused; the data is visible there after "
       "shmem_quiet or\n"
       "a barrier. Raises ArgumentError before anything moves. OpenSHMEM 1.5, section 9.5.1.");
  both(m, cls, "get", get, py::arg("dest"), py::arg("source"), py::arg("pe"), py::kw_only(),
       py::arg("nelems") = py::none(),
       "Copies `nelems` elements (default: all of dest) from the symmetric `source` on PE `pe` to "
       "local\n"
       "`dest`; returns when they are there. OpenSHMEM 1.5, section 9.5.4.");
  both(m, cls, "put_signal", put_signal, py::arg("dest"), py::arg("source"), py::arg("signal"),
       py::arg("value"), py::arg("op"), py::arg("pe"), py::kw_only(),
       py::arg("nelems") = py::none(),
       "shmem_put, then the uint64 `signal` on PE `pe` is set to `value` (SHMEM_SIGNAL_SET) or "
       "raised by\n"
       "it (SHMEM_SIGNAL_ADD): whoever sees the signal sees the data. OpenSHMEM 1.5, section 9.8.");
  bind_atomics(m, cls);
  both(m, cls, "wait_until", wait_until, py::arg("ivar"), py::arg("cmp"), py::arg("cmp_value"),
       "Waits until the local symmetric ivar[0] compares with cmp_value; returns the value seen. "
       "Raises\n"
       "WaitTimeout after RAILSHMEM_TIMEOUT_S, saying what was expected and seen. OpenSHMEM 1.5, "
       "9.10.");
  both(m, cls, "signal_wait_until", signal_wait_until, py::arg("sig_addr"), py::arg("cmp"),
       py::arg("cmp_value"), "shmem_wait_until for a signal word. OpenSHMEM 1.5, section 9.8.");
  both(
      m, cls, "fence", +[](Runtime& runtime) { run(false, [&] { runtime.fence(); }); },
      "Puts, signals and atomics to each PE before the fence take effect there before later ones.");
  both(
      m, cls, "quiet", +[](Runtime& runtime) { run(false, [&] { runtime.quiet(); }); },
      "Returns when everything this PE has posted is complete and visible at its targets.");
  both(
      m, cls, "barrier_all", +[](Runtime& runtime) { run(false, [&] { runtime.barrier_all(); }); },
      "Collective: quiet, then waits for every PE. Raises ArgumentError on all PEs where they are "
      "in\n"
      "different collective calls.");
  both(
      m, cls, "sync_all", +[](Runtime& runtime) { run(false, [&] { runtime.sync_all(); }); },
      "Collective: waits for every PE, without quiet.");
}

}  // namespace railshmem::python
