// Puts, gets, signals and order on numpy arrays (OpenSHMEM 1.5, sections 9.6, 9.8, 9.11).
#include "python/bindings/array_view.hpp"

namespace railshmem::python {
namespace {

using device::AtomicOp;

// Copies between mapped memory never wait; up to this size they are over before another thread
// would have got the interpreter.
constexpr std::size_t kBrief = 256 * 1024;

bool is_brief(const Context& context, long long pe, std::size_t bytes) {
  return bytes <= kBrief && context.maps(pe_of(pe));
}

struct Move {
  const ArrayView to;
  const ArrayView from;
  std::size_t bytes;

  Move(const Context& context, const char* call, py::handle dest, py::handle source,
       bool count_source, py::handle nelems)
      : to(dest, call, "dest", true),
        from(source, call, "source", false),
        bytes(common_bytes(call, to, from, count_source ? from : to, nelems)) {
    require_reachable(context, to, call, "dest");
    require_reachable(context, from, call, "source");
  }
};

void put(Context& context, py::handle dest, py::handle source, long long pe, py::handle nelems) {
  const Move move(context, "shmem_put", dest, source, true, nelems);
  run(is_brief(context, pe, move.bytes),
      [&] { context.put(move.to.data(), move.from.data(), move.bytes, pe_of(pe)); });
}

void put_nbi(Context& context, py::handle dest, py::handle source, long long pe,
             py::handle nelems) {
  const Move move(context, "shmem_put_nbi", dest, source, true, nelems);
  run(is_brief(context, pe, move.bytes),
      [&] { context.put_nbi(move.to.data(), move.from.data(), move.bytes, pe_of(pe)); });
}

void get(Context& context, py::handle dest, py::handle source, long long pe, py::handle nelems) {
  const Move move(context, "shmem_get", dest, source, false, nelems);
  run(is_brief(context, pe, move.bytes),
      [&] { context.get(move.to.data(), move.from.data(), move.bytes, pe_of(pe)); });
}

void get_nbi(Context& context, py::handle dest, py::handle source, long long pe,
             py::handle nelems) {
  const Move move(context, "shmem_get_nbi", dest, source, false, nelems);
  run(is_brief(context, pe, move.bytes),
      [&] { context.get_nbi(move.to.data(), move.from.data(), move.bytes, pe_of(pe)); });
}

// One element of an array, of any dtype.
struct Element {
  const ArrayView view;
  Element(py::handle array, const char* call, const char* name, bool writable)
      : view(array, call, name, writable) {
    if (!view.typed() || view.size() == 0)
      fail(ErrorKind::argument, call, ": ", name, " has ", view.describe(),
           "; expected an array of at least one element");
  }
};

void p(Context& context, py::handle dest, const py::object& value, long long pe) {
  const Element element(dest, "shmem_p", "dest", true);
  const py::array one = py::array(element.view.dtype(), std::vector<py::ssize_t>{1});
  one.attr("__setitem__")(0, value);
  run(is_brief(context, pe, element.view.item_bytes()),
      [&] { context.put(element.view.data(), one.data(), element.view.item_bytes(), pe_of(pe)); });
}

py::object g(Context& context, py::handle source, long long pe) {
  const Element element(source, "shmem_g", "source", false);
  py::array one = py::array(element.view.dtype(), std::vector<py::ssize_t>{1});
  void* to = one.mutable_data();
  run(is_brief(context, pe, element.view.item_bytes()),
      [&] { context.get(to, element.view.data(), element.view.item_bytes(), pe_of(pe)); });
  return one.attr("__getitem__")(0);
}

// Checks that strided elements lie inside the two arrays, and returns the size of one.
std::size_t check_strided(const char* call, const ArrayView& to, const ArrayView& from,
                          long long dst, long long sst, long long nelems) {
  common_bytes(call, to, from, from, py::int_(0));  // the dtypes
  const auto fits = [&](const ArrayView& view, const char* name, long long stride) {
    if (nelems < 0 || stride < 1)
      fail(ErrorKind::argument, call, ": nelems ", nelems, ", dst ", dst, ", sst ", sst,
           ": expected strides of at least 1 and no negative number of elements");
    const auto size = static_cast<long long>(view.size());
    if (nelems > 0 && (nelems - 1 > (size - 1) / stride || size == 0))
      fail(ErrorKind::argument, call, ": ", nelems, " elements, ", stride, " apart, do not fit ",
           name, ", which has ", view.describe());
  };
  fits(to, "dest", dst);
  fits(from, "source", sst);
  return to.typed() ? to.item_bytes() : from.item_bytes();
}

void iput(Context& context, py::handle dest, py::handle source, long long dst, long long sst,
          long long nelems, long long pe) {
  const ArrayView to(dest, "shmem_iput", "dest", true);
  const ArrayView from(source, "shmem_iput", "source", false);
  const std::size_t item = check_strided("shmem_iput", to, from, dst, sst, nelems);
  require_reachable(context, to, "shmem_iput", "dest");
  require_reachable(context, from, "shmem_iput", "source");
  run(false, [&] {
    context.iput(to.data(), from.data(), dst, sst, static_cast<std::size_t>(nelems), item,
                 pe_of(pe));
  });
}

void iget(Context& context, py::handle dest, py::handle source, long long dst, long long sst,
          long long nelems, long long pe) {
  const ArrayView to(dest, "shmem_iget", "dest", true);
  const ArrayView from(source, "shmem_iget", "source", false);
  const std::size_t item = check_strided("shmem_iget", to, from, dst, sst, nelems);
  require_reachable(context, to, "shmem_iget", "dest");
  require_reachable(context, from, "shmem_iget", "source");
  run(false, [&] {
    context.iget(to.data(), from.data(), dst, sst, static_cast<std::size_t>(nelems), item,
                 pe_of(pe));
  });
}

void put_signal(Context& context, py::handle dest, py::handle source, py::handle sig_addr,
                uint64_t signal, AtomicOp sig_op, long long pe, py::handle nelems) {
  const Move move(context, "shmem_put_signal", dest, source, true, nelems);
  uint64_t* word = signal_word(sig_addr, "shmem_put_signal");
  // ADD waits for nothing either, where atomics are the core's own.
  run(is_brief(context, pe, move.bytes), [&] {
    context.put_signal(move.to.data(), move.from.data(), move.bytes, word, signal, sig_op,
                       pe_of(pe));
  });
}

void put_signal_nbi(Context& context, py::handle dest, py::handle source, py::handle sig_addr,
                    uint64_t signal, AtomicOp sig_op, long long pe, py::handle nelems) {
  const Move move(context, "shmem_put_signal_nbi", dest, source, true, nelems);
  uint64_t* word = signal_word(sig_addr, "shmem_put_signal_nbi");
  run(is_brief(context, pe, move.bytes), [&] {
    context.put_signal_nbi(move.to.data(), move.from.data(), move.bytes, word, signal, sig_op,
                           pe_of(pe));
  });
}

void fence(Context& context) {
  run(false, [&] { context.fence(); });
}

void quiet(Context& context) {
  run(false, [&] { context.quiet(); });
}

}  // namespace

void bind_rma(py::module_& m) {
  py::enum_<AtomicOp>(m, "SignalOp").value("SET", AtomicOp::set).value("ADD", AtomicOp::add);

  const auto dest = py::arg("dest");
  const auto source = py::arg("source");
  const auto pe = py::arg("pe");
  const auto nelems = py::arg("nelems") = py::none();
  bind_context_operation(
      m, "put", put, dest, source, pe, py::kw_only(), nelems,
      "Copies `nelems` elements (default: all of source) from local `source` to the symmetric "
      "`dest`\n"
      "on PE `pe`. Returns when `source` may be reused; the data is visible there after "
      "shmem_quiet or\n"
      "a barrier. Raises ArgumentError before anything moves. OpenSHMEM 1.5, section 9.6.1.1.");
  bind_context_operation(
      m, "put_nbi", put_nbi, dest, source, pe, py::kw_only(), nelems,
      "shmem_put that does not wait: `source`, where it lies in the symmetric heap, must stay as "
      "it is\n"
      "until shmem_quiet. OpenSHMEM 1.5, section 9.6.2.1.");
  bind_context_operation(
      m, "get", get, dest, source, pe, py::kw_only(), nelems,
      "Copies `nelems` elements (default: all of dest) from the symmetric `source` on PE `pe` to "
      "local\n"
      "`dest`; returns when they are there. OpenSHMEM 1.5, section 9.6.1.4.");
  bind_context_operation(
      m, "get_nbi", get_nbi, dest, source, pe, py::kw_only(), nelems,
      "shmem_get whose `dest` holds the data after shmem_quiet. OpenSHMEM 1.5, section 9.6.2.2.");
  bind_context_operation(m, "p", p, dest, py::arg("value"), pe,
                         "dest[0] on PE `pe` = value, of dest's dtype; complete like shmem_put.\n"
                         "OpenSHMEM 1.5, section 9.6.1.2.");
  bind_context_operation(m, "g", g, source, pe,
                         "Returns source[0] of PE `pe`, a scalar of source's dtype. OpenSHMEM "
                         "1.5, section 9.6.1.5.");
  bind_context_operation(
      m, "iput", iput, dest, source, py::arg("dst"), py::arg("sst"), py::arg("nelems"), pe,
      "shmem_put of `nelems` elements that lie `sst` elements apart in source, to places `dst` "
      "elements\n"
      "apart in dest. OpenSHMEM 1.5, section 9.6.1.3.");
  bind_context_operation(
      m, "iget", iget, dest, source, py::arg("dst"), py::arg("sst"), py::arg("nelems"), pe,
      "shmem_get of `nelems` elements that lie `sst` elements apart in source, to places `dst` "
      "elements\n"
      "apart in dest. OpenSHMEM 1.5, section 9.6.1.6.");
  bind_context_operation(
      m, "put_signal", put_signal, dest, source, py::arg("sig_addr"), py::arg("signal"),
      py::arg("sig_op"), pe, py::kw_only(), nelems,
      "shmem_put, then the uint64 at `sig_addr` on PE `pe` is set to `signal` "
      "(SHMEM_SIGNAL_SET) or\n"
      "raised by it (SHMEM_SIGNAL_ADD): whoever sees the signal sees the data. OpenSHMEM 1.5, "
      "section 9.8.3.");
  bind_context_operation(
      m, "put_signal_nbi", put_signal_nbi, dest, source, py::arg("sig_addr"), py::arg("signal"),
      py::arg("sig_op"), pe, py::kw_only(), nelems,
      "shmem_put_signal that does not wait: `source` like that of shmem_put_nbi. OpenSHMEM 1.5, "
      "section 9.8.4.");
  bind_context_operation(
      m, "fence", fence,
      "Puts, signals and atomics to each PE before the fence take effect there before later "
      "ones.\n"
      "OpenSHMEM 1.5, section 9.11.1.");
  bind_context_operation(
      m, "quiet", quiet,
      "Returns when everything posted on this context is complete and visible at its targets.\n"
      "OpenSHMEM 1.5, section 9.11.2.");
}

}  // namespace railshmem::python
