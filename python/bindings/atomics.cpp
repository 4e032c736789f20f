// Atomics on numpy arrays (OpenSHMEM 1.5, section 9.7).
#include "python/bindings/array_view.hpp"

namespace railshmem::python {
namespace {

using device::AtomicOp;

// One name of the specification. Operations without a value add 1.
struct Atomic {
  const char* name;
  AtomicOp op;
  bool allow_float;
  const char* doc;
  int section;          // 9.7.1.section
  int nbi_section = 0;  // 9.7.2.nbi_section, where there is such a form
};

constexpr Atomic kUpdates[] = {
    {"atomic_set", AtomicOp::set, true, "dest[0] on `pe` = value, atomically.", 2},
    {"atomic_add", AtomicOp::add, false, "dest[0] on `pe` += value, atomically.", 8},
    {"atomic_and", AtomicOp::bit_and, false, "dest[0] on `pe` &= value, atomically.", 10},
    {"atomic_or", AtomicOp::bit_or, false, "dest[0] on `pe` |= value, atomically.", 12},
    {"atomic_xor", AtomicOp::bit_xor, false, "dest[0] on `pe` ^= value, atomically.", 14},
};
constexpr Atomic kFetches[] = {
    {"atomic_swap", AtomicOp::swap, true, "dest[0] on `pe` = value", 4, 3},
    {"atomic_fetch_add", AtomicOp::add, false, "dest[0] on `pe` += value", 7, 5},
    {"atomic_fetch_and", AtomicOp::bit_and, false, "dest[0] on `pe` &= value", 9, 6},
    {"atomic_fetch_or", AtomicOp::bit_or, false, "dest[0] on `pe` |= value", 11, 7},
    {"atomic_fetch_xor", AtomicOp::bit_xor, false, "dest[0] on `pe` ^= value", 13, 8},
};

// What an atomic works with.
struct Operands {
  std::string call;
  Word word;
  uint64_t value = 0;
  uint64_t condition = 0;

  Operands(const char* name, bool allow_float, py::handle dest, py::handle value_given,
           py::handle condition_given)
      : call(std::string("shmem_") + name), word(word_of(dest, call.c_str(), "dest", allow_float)) {
    if (value_given) value = bits_of(value_given, word, call.c_str(), "value");
    if (condition_given) condition = bits_of(condition_given, word, call.c_str(), "cond");
  }
};

void update(Context& context, const Atomic& atomic, py::handle dest, py::handle value,
            long long pe) {
  const Operands with(atomic.name, atomic.allow_float, dest, value, {});
  run(!context.atomics_wait(), [&] {
    context.atomic_update(atomic.op, with.word.address, with.word.width, with.value, pe_of(pe));
  });
}

py::object fetch(Context& context, const Atomic& atomic, py::handle dest, py::handle value,
                 py::handle condition, long long pe) {
  const Operands with(atomic.name, atomic.allow_float, dest, value, condition);
  uint64_t old = 0;
  run(!context.atomics_wait(), [&] {
    old = context.atomic_fetch(atomic.op, with.word.address, with.word.width, with.value,
                               with.condition, pe_of(pe));
  });
  return number_of(old, with.word);
}

void fetch_nbi(Context& context, const Atomic& atomic, py::handle result, py::handle dest,
               py::handle value, py::handle condition, long long pe) {
  const Operands with(atomic.name, atomic.allow_float, dest, value, condition);
  const ArrayView landing(result, with.call.c_str(), "fetch", true);
  const Word lands = word_of(result, with.call.c_str(), "fetch", atomic.allow_float);
  if (lands.width != with.word.width || lands.kind != with.word.kind)
    fail(ErrorKind::argument, with.call, ": fetch has ", landing.describe(),
         ", another type than dest");
  require_reachable(context, landing, with.call.c_str(), "fetch");
  std::shared_ptr<void> owner = owner_of(result);
  run(!context.atomics_wait(), [&] {
    context.atomic_fetch_nbi(atomic.op, landing.data(), with.word.address, with.word.width,
                             with.value, with.condition, pe_of(pe), std::move(owner));
  });
}

constexpr Atomic kFetch = {"atomic_fetch", AtomicOp::fetch, true, "", 1, 1};
constexpr Atomic kFetchNbi = {"atomic_fetch_nbi", AtomicOp::fetch, true, "", 1, 1};
constexpr Atomic kCompareSwap = {"atomic_compare_swap", AtomicOp::compare_swap, false, "", 3, 2};
constexpr Atomic kCompareSwapNbi = {
    "atomic_compare_swap_nbi", AtomicOp::compare_swap, false, "", 3, 2};
constexpr Atomic kInc = {"atomic_inc", AtomicOp::add, false, "", 6};
constexpr Atomic kFetchInc = {"atomic_fetch_inc", AtomicOp::add, false, "", 5, 4};
constexpr Atomic kFetchIncNbi = {"atomic_fetch_inc_nbi", AtomicOp::add, false, "", 5, 4};

constexpr const char* kTypes =
    "\n`dest`: symmetric, integers of 32 or 64 bits (set, swap and fetch: floats, too). "
    "OpenSHMEM 1.5, section 9.7.";

std::string doc_of(const Atomic& atomic, const std::string& meaning) {
  return text(meaning, kTypes, "1.", atomic.section, ".");
}

std::string doc_of_nbi(const Atomic& atomic, const std::string& meaning) {
  return text(meaning, kTypes, "2.", atomic.nbi_section, ".");
}

}  // namespace

void bind_atomics(py::module_& m) {
  const auto dest = py::arg("dest");
  const auto value = py::arg("value");
  const auto cond = py::arg("cond");
  const auto into = py::arg("fetch");
  const auto source = py::arg("source");
  const auto pe = py::arg("pe");
  // Each call is a closure over its row, so that errors name the call the user made.
  for (const Atomic& row : kUpdates)
    bind_context_operation_as<py::handle, py::handle, long long>(
        m, row.name,
        [&row](Context& context, py::handle to, py::handle given, long long target) {
          update(context, row, to, given, target);
        },
        dest, value, pe, doc_of(row, row.doc).c_str());
  for (const Atomic& row : kFetches) {
    bind_context_operation_as<py::handle, py::handle, long long>(
        m, row.name,
        [&row](Context& context, py::handle to, py::handle given, long long target) {
          return fetch(context, row, to, given, {}, target);
        },
        dest, value, pe,
        doc_of(row, text(row.doc, ", atomically; returns the old value.")).c_str());
    bind_context_operation_as<py::handle, py::handle, py::handle, long long>(
        m, std::string(row.name) + "_nbi",
        [&row](Context& context, py::handle result, py::handle to, py::handle given,
               long long target) { fetch_nbi(context, row, result, to, given, {}, target); },
        into, dest, value, pe,
        doc_of_nbi(row,
                   text(row.doc, ", atomically; fetch[0] holds the old value after shmem_quiet."))
            .c_str());
  }
  bind_context_operation(
      m, "atomic_fetch",
      +[](Context& context, py::handle from, long long target) {
        return fetch(context, kFetch, from, {}, {}, target);
      },
      source, pe, doc_of(kFetch, "Returns source[0] of `pe`, read atomically.").c_str());
  bind_context_operation(
      m, "atomic_fetch_nbi",
      +[](Context& context, py::handle result, py::handle from, long long target) {
        fetch_nbi(context, kFetchNbi, result, from, {}, {}, target);
      },
      into, source, pe,
      doc_of_nbi(kFetchNbi, "fetch[0] = source[0] of `pe`, read atomically, after shmem_quiet.")
          .c_str());
  bind_context_operation(
      m, "atomic_compare_swap",
      +[](Context& context, py::handle to, py::handle expected, py::handle given,
          long long target) { return fetch(context, kCompareSwap, to, given, expected, target); },
      dest, cond, value, pe,
      doc_of(kCompareSwap, "dest[0] on `pe` = value if it equals cond; returns the old value.")
          .c_str());
  bind_context_operation(
      m, "atomic_compare_swap_nbi",
      +[](Context& context, py::handle result, py::handle to, py::handle expected, py::handle given,
          long long target) {
        fetch_nbi(context, kCompareSwapNbi, result, to, given, expected, target);
      },
      into, dest, cond, value, pe,
      doc_of_nbi(kCompareSwapNbi,
                 "dest[0] on `pe` = value if it equals cond; fetch[0] holds the old value after "
                 "shmem_quiet.")
          .c_str());
  bind_context_operation(
      m, "atomic_inc",
      +[](Context& context, py::handle to, long long target) {
        update(context, kInc, to, py::int_(1), target);
      },
      dest, pe, doc_of(kInc, "dest[0] on `pe` += 1, atomically.").c_str());
  bind_context_operation(
      m, "atomic_fetch_inc",
      +[](Context& context, py::handle to, long long target) {
        return fetch(context, kFetchInc, to, py::int_(1), {}, target);
      },
      dest, pe,
      doc_of(kFetchInc, "dest[0] on `pe` += 1, atomically; returns the old value.").c_str());
  bind_context_operation(
      m, "atomic_fetch_inc_nbi",
      +[](Context& context, py::handle result, py::handle to, long long target) {
        fetch_nbi(context, kFetchIncNbi, result, to, py::int_(1), {}, target);
      },
      into, dest, pe,
      doc_of_nbi(
          kFetchIncNbi,
          "dest[0] on `pe` += 1, atomically; fetch[0] holds the old value after shmem_quiet.")
          .c_str());
}

}  // namespace railshmem::python
