// Waiting for and testing words of this PE's heap, and locks (OpenSHMEM 1.5, sections 9.10, 9.12).
#include "shmem/api/waits.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "python/bindings/array_view.hpp"
#include "shmem/api/locks.hpp"

namespace railshmem::python {
namespace {

using device::Compare;

// The arguments of a call on many words, kept alive for as long as it waits.
class Many {
 public:
  Many(const std::string& call, py::handle ivars, py::handle status, py::handle given, bool differ)
      : call_(call), word_(word_of_any(ivars)), differ_(differ) {
    const ArrayView view(ivars, call.c_str(), "ivars", false);
    count_ = view.size();
    if (!status.is_none()) {
      status_ = py::array_t<int, py::array::c_style | py::array::forcecast>::ensure(status);
      if (!status_ || static_cast<std::size_t>(status_.size()) != count_)
        fail(ErrorKind::argument, call, ": status has ",
             status_ ? text(status_.size(), " elements") : std::string("no integers"),
             "; expected ", count_, ", one for each of ivars");
    }
    // Of the words' own type: what does not fit it is refused.
    const auto object = py::reinterpret_borrow<py::object>(given);
    const py::list values = differ ? py::list(object) : py::list(py::make_tuple(object));
    if (differ && values.size() != count_)
      fail(ErrorKind::argument, call, ": cmp_values has ", values.size(), " elements; expected ",
           count_, ", one for each of ivars");
    for (const py::handle value : values)
      values_.push_back(bits_of(value, word_, call.c_str(), "cmp_value"));
  }

  const Word& word() const { return word_; }

  // Calls f(Words<T>) with T the words' type.
  template <class F>
  auto with_words(const F& f) const {
    return with_type(word_, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> values;
      for (const uint64_t bits : values_) values.push_back(static_cast<T>(bits));
      return f(Words<T>{static_cast<const T*>(word_.address), count_,
                        status_ ? status_.data() : nullptr, values.data(), differ_});
    });
  }

 private:
  // An empty array has a type but no word.
  Word word_of_any(py::handle ivars) const {
    const ArrayView view(ivars, call_.c_str(), "ivars", false);
    if (view.typed() && view.size() == 0 && (view.item_bytes() == 4 || view.item_bytes() == 8))
      return {nullptr, static_cast<unsigned>(view.item_bytes()), view.dtype().kind()};
    return word_of(ivars, call_.c_str(), "ivars", false);
  }

  const std::string call_;
  const Word word_;
  const bool differ_;
  std::size_t count_ = 0;
  py::array_t<int, py::array::c_style | py::array::forcecast> status_{
      py::reinterpret_steal<py::array_t<int, py::array::c_style | py::array::forcecast>>(
          py::handle())};
  std::vector<uint64_t> values_;
};

py::object index_or_none(std::size_t index) {
  return index == kNoIndex ? py::object(py::none()) : py::object(py::int_(index));
}

py::array_t<int64_t> indices_of(const std::vector<std::size_t>& found) {
  py::array_t<int64_t> out(static_cast<py::ssize_t>(found.size()));
  std::copy(found.begin(), found.end(), out.mutable_data());
  return out;
}

py::object wait_until_one(Runtime& runtime, py::handle ivar, Compare compare, py::handle value) {
  const Word word = word_of(ivar, "shmem_wait_until", "ivar", false);
  const uint64_t expected = bits_of(value, word, "shmem_wait_until", "cmp_value");
  const uint64_t seen = with_type(word, [&](auto zero) {
    using T = decltype(zero);
    T last = 0;
    run(false, [&] {
      last = wait_until(runtime, static_cast<const T*>(word.address), compare,
                        static_cast<T>(expected));
    });
    return static_cast<uint64_t>(last);
  });
  return number_of(word.width == 4 ? seen & UINT32_MAX : seen, word);
}

bool test_one(Runtime& runtime, py::handle ivar, Compare compare, py::handle value) {
  const Word word = word_of(ivar, "shmem_test", "ivar", false);
  const uint64_t expected = bits_of(value, word, "shmem_test", "cmp_value");
  return with_type(word, [&](auto zero) {
    using T = decltype(zero);
    return test(runtime, static_cast<const T*>(word.address), compare, static_cast<T>(expected));
  });
}

uint64_t signal_fetch_word(Runtime& runtime, py::handle sig_addr) {
  return signal_fetch(runtime, signal_word(sig_addr, "shmem_signal_fetch"));
}

uint64_t signal_wait(Runtime& runtime, py::handle sig_addr, Compare compare, uint64_t value) {
  const uint64_t* word = signal_word(sig_addr, "shmem_signal_wait_until");
  uint64_t seen = 0;
  run(false, [&] { seen = signal_wait_until(runtime, word, compare, value); });
  return seen;
}

// ---- many words: plain (one value for all) and vector (a value for each) ----

template <bool Differ>
void wait_all(Runtime& runtime, py::handle ivars, py::handle status, Compare compare,
              py::handle value) {
  const Many many("shmem_wait_until_all", ivars, status, value, Differ);
  many.with_words(
      [&](auto words) { run(false, [&] { wait_until_all(runtime, words, compare); }); });
}

template <bool Differ>
py::object wait_any(Runtime& runtime, py::handle ivars, py::handle status, Compare compare,
                    py::handle value) {
  const Many many("shmem_wait_until_any", ivars, status, value, Differ);
  std::size_t found = kNoIndex;
  many.with_words(
      [&](auto words) { run(false, [&] { found = wait_until_any(runtime, words, compare); }); });
  return index_or_none(found);
}

template <bool Differ>
py::array_t<int64_t> wait_some(Runtime& runtime, py::handle ivars, py::handle status,
                               Compare compare, py::handle value) {
  const Many many("shmem_wait_until_some", ivars, status, value, Differ);
  std::vector<std::size_t> found;
  many.with_words(
      [&](auto words) { run(false, [&] { found = wait_until_some(runtime, words, compare); }); });
  return indices_of(found);
}

template <bool Differ>
bool test_every(Runtime& runtime, py::handle ivars, py::handle status, Compare compare,
                py::handle value) {
  const Many many("shmem_test_all", ivars, status, value, Differ);
  return many.with_words([&](auto words) { return test_all(runtime, words, compare); });
}

template <bool Differ>
py::object test_for_any(Runtime& runtime, py::handle ivars, py::handle status, Compare compare,
                        py::handle value) {
  const Many many("shmem_test_any", ivars, status, value, Differ);
  return index_or_none(
      many.with_words([&](auto words) { return test_any(runtime, words, compare); }));
}

template <bool Differ>
py::array_t<int64_t> test_for_some(Runtime& runtime, py::handle ivars, py::handle status,
                                   Compare compare, py::handle value) {
  const Many many("shmem_test_some", ivars, status, value, Differ);
  return indices_of(
      many.with_words([&](auto words) { return test_some(runtime, words, compare); }));
}

// ---- locks ----

uint64_t* lock_word(py::handle lock, const char* call) {
  const Word word = word_of(lock, call, "lock", false);
  if (word.width != 8)
    fail(ErrorKind::argument, call, ": lock has integers of 32 bits; expected 64");
  return static_cast<uint64_t*>(word.address);
}

void set_lock_word(Runtime& runtime, py::handle lock) {
  uint64_t* word = lock_word(lock, "shmem_set_lock");
  run(false, [&] { set_lock(runtime, word); });
}

void clear_lock_word(Runtime& runtime, py::handle lock) {
  uint64_t* word = lock_word(lock, "shmem_clear_lock");
  run(false, [&] { clear_lock(runtime, word); });
}

int test_lock_word(Runtime& runtime, py::handle lock) {
  uint64_t* word = lock_word(lock, "shmem_test_lock");
  bool got = false;
  run(false, [&] { got = test_lock(runtime, word); });
  return got ? 0 : 1;
}

}  // namespace

void bind_waits(py::module_& m) {
  py::enum_<Compare>(m, "Compare")
      .value("EQ", Compare::equal)
      .value("NE", Compare::not_equal)
      .value("GT", Compare::greater)
      .value("GE", Compare::greater_equal)
      .value("LT", Compare::less)
      .value("LE", Compare::less_equal);

  const auto ivar = py::arg("ivar");
  const auto cmp = py::arg("cmp");
  bind_job_operation(
      m, "wait_until", wait_until_one, ivar, cmp, py::arg("cmp_value"),
      "Waits until the local symmetric ivar[0] compares with cmp_value; returns the value seen. "
      "Raises\n"
      "WaitTimeout after RAILSHMEM_TIMEOUT_S, saying what was expected and seen. OpenSHMEM 1.5, "
      "section 9.10.1.");
  bind_job_operation(m, "test", test_one, ivar, cmp, py::arg("cmp_value"),
                     "True when the local symmetric ivar[0] compares with cmp_value. OpenSHMEM "
                     "1.5, section 9.10.8.");
  bind_job_operation(m, "signal_fetch", signal_fetch_word, py::arg("sig_addr"),
                     "Returns the local signal; data put before it is visible. OpenSHMEM 1.5, "
                     "section 9.8.5.");
  bind_job_operation(
      m, "signal_wait_until", signal_wait, py::arg("sig_addr"), cmp, py::arg("cmp_value"),
      "shmem_wait_until for a signal word (uint64). OpenSHMEM 1.5, section 9.10.15.");

  static constexpr const char* kMany =
      "\n`ivars`: local symmetric integers of 32 or 64 bits. Those whose `status` is not 0 are "
      "left out;\n"
      "None: none is. Raises WaitTimeout naming a word, what was expected and seen. OpenSHMEM 1.5, "
      "section 9.10.";
  // `section`: of the plain form; the vector form's is three further on.
  const auto define = [&](const std::string& name, int section, const auto& plain,
                          const auto& vector, const std::string& doc) {
    const auto ivars = py::arg("ivars");
    const auto status = py::arg("status");
    bind_job_operation(m, name, plain, ivars, status, cmp, py::arg("cmp_value"),
                       text(doc, " one value, cmp_value.", kMany, section, ".").c_str());
    bind_job_operation(m, name + "_vector", vector, ivars, status, cmp, py::arg("cmp_values"),
                       text(doc, " its own value of cmp_values.", kMany, section + 3, ".").c_str());
  };
  define("wait_until_all", 2, wait_all<false>, wait_all<true>,
         "Waits until every word has compared with");
  define("wait_until_any", 3, wait_any<false>, wait_any<true>,
         "Waits until some word compares and returns its index; None where none takes part. Words "
         "take\n"
         "turns, so that none is passed over for ever. Each is compared with");
  define("wait_until_some", 4, wait_some<false>, wait_some<true>,
         "Waits until some word compares and returns the indices [k] of all that do, int64; empty "
         "where\n"
         "none takes part. Each is compared with");
  define("test_all", 9, test_every<false>, test_every<true>, "True when every word compares with");
  define("test_any", 10, test_for_any<false>, test_for_any<true>,
         "Returns the index of a word that compares, or None. Each is compared with");
  define("test_some", 11, test_for_some<false>, test_for_some<true>,
         "Returns the indices [k], int64, of all words that compare. Each is compared with");

  const auto lock = py::arg("lock");
  bind_job_operation(m, "set_lock", set_lock_word, lock,
                     "Waits for its turn to hold the lock: a symmetric int64 array whose first "
                     "word starts as 0.\n"
                     "OpenSHMEM 1.5, section 9.12.1.");
  bind_job_operation(m, "clear_lock", clear_lock_word, lock,
                     "Completes what this PE posted on the default context, then lets the next PE "
                     "have the lock.\n"
                     "OpenSHMEM 1.5, section 9.12.1.");
  bind_job_operation(m, "test_lock", test_lock_word, lock,
                     "Takes the lock if it is free. Returns 0 when it is now this PE's, else 1. "
                     "OpenSHMEM 1.5, section 9.12.1.");
}

}  // namespace railshmem::python
