#include "shmem/base/fault_settings.hpp"

#include <algorithm>
#include <cstdlib>

#include "shmem/base/error.hpp"

namespace railshmem {
namespace {

[[noreturn]] void refuse(const std::string& part, const char* expected) {
  fail(ErrorKind::init, "RAILSHMEM_FAULTS: '", part, "': expected ", expected);
}

// What stands before and after the first `mark`; nothing after it where there is none.
struct Halves {
  Halves(const std::string& whole, char mark) {
    const std::size_t at = whole.find(mark);
    left = whole.substr(0, at);
    if (at != std::string::npos) right = whole.substr(at + 1);
  }
  std::string left;
  std::string right;
};

class Part {
 public:
  explicit Part(const std::string& whole) : whole_(whole), halves_(whole, '=') {}

  const std::string& key() const { return halves_.left; }
  const std::string& value() const { return halves_.right; }

  uint64_t count(const std::string& digits, uint64_t low, const char* expected) const {
    char* end = nullptr;
    const unsigned long long parsed = std::strtoull(digits.c_str(), &end, 10);
    if (digits.empty() || digits[0] == '-' || *end != '\0' || parsed < low)
      refuse(whole_, expected);
    return parsed;
  }

  double share(const std::string& digits, const char* expected) const {
    char* end = nullptr;
    const double parsed = std::strtod(digits.c_str(), &end);
    if (digits.empty() || *end != '\0' || !(parsed >= 0 && parsed <= 1)) refuse(whole_, expected);
    return parsed;
  }

  static bool is_time(const std::string& time) { return !time.empty() && time.back() == 's'; }

  uint64_t nanoseconds(const std::string& time, const char* expected) const {
    char* end = nullptr;
    const double number = std::strtod(time.c_str(), &end);
    const std::string unit = end;
    double scale = 0;
    if (unit == "s") scale = 1e9;
    if (unit == "ms") scale = 1e6;
    if (unit == "us") scale = 1e3;
    if (unit == "ns") scale = 1;
    if (end == time.c_str() || scale == 0 || !(number >= 0 && number * scale < 1e15))
      refuse(whole_, expected);
    return static_cast<uint64_t>(number * scale);
  }

 private:
  std::string whole_;
  Halves halves_;
};

void read_lose(const Part& part, FaultSettings& out) {
  constexpr const char* kExpected = "lose=SHARE from 0 to 1, or lose=@N, counted from 1";
  if (!part.value().empty() && part.value()[0] == '@')
    out.lose_at = part.count(part.value().substr(1), 1, kExpected);
  else
    out.lose = part.share(part.value(), kExpected);
}

void read_delay(const Part& part, FaultSettings& out) {
  constexpr const char* kExpected = "delay=SHARE:TIME, such as delay=0.01:200us";
  const Halves halves(part.value(), ':');
  out.delay = part.share(halves.left, kExpected);
  out.delay_ns = part.nanoseconds(halves.right, kExpected);
}

void read_fail(const Part& part, FaultSettings& out) {
  constexpr const char* kExpected =
      "fail=OPERATION@N or fail=OPERATION@N:ANSWER, with the operations any, write, read, atomic, "
      "send and the answers access, operation, retry";
  const Halves at(part.value(), '@');
  const Halves number(at.right, ':');
  out.fail_at = part.count(number.left, 1, kExpected);

  using Operation = FaultSettings::Operation;
  if (at.left == "any")
    out.fail_operation = Operation::any;
  else if (at.left == "write")
    out.fail_operation = Operation::write;
  else if (at.left == "read")
    out.fail_operation = Operation::read;
  else if (at.left == "atomic")
    out.fail_operation = Operation::atomic;
  else if (at.left == "send")
    out.fail_operation = Operation::send;
  else
    refuse("fail=" + part.value(), kExpected);

  using Answer = FaultSettings::Answer;
  if (number.right.empty() || number.right == "operation")
    out.fail_answer = Answer::operation;
  else if (number.right == "access")
    out.fail_answer = Answer::access;
  else if (number.right == "retry")
    out.fail_answer = Answer::retry;
  else
    refuse("fail=" + part.value(), kExpected);
}

void read_rail(const Part& part, FaultSettings& out) {
  constexpr const char* kExpected =
      "rail=RAIL@TIME or rail=RAIL@N, such as rail=1@0.5s or rail=1@1000";
  const Halves at(part.value(), '@');
  out.rail = static_cast<int>(part.count(at.left, 0, kExpected));
  if (Part::is_time(at.right))
    out.rail_time_ns = part.nanoseconds(at.right, kExpected);
  else
    out.rail_after = part.count(at.right, 1, kExpected);
}

}  // namespace

FaultSettings parse_faults(const std::string& value) {
  FaultSettings out;
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    const std::string whole = value.substr(at, end - at);
    at = end + 1;
    if (whole.empty()) continue;
    const Part part(whole);
    if (part.key() == "pe")
      out.pe = static_cast<int>(part.count(part.value(), 0, "pe=RANK"));
    else if (part.key() == "lose")
      read_lose(part, out);
    else if (part.key() == "delay")
      read_delay(part, out);
    else if (part.key() == "reorder" && (part.value() == "on" || part.value() == "off"))
      out.reorder = part.value() == "on";
    else if (part.key() == "fail")
      read_fail(part, out);
    else if (part.key() == "rail")
      read_rail(part, out);
    else
      refuse(whole, "one of pe=, lose=, delay=, reorder=on, fail=, rail=");
  }
  return out;
}

}  // namespace railshmem
