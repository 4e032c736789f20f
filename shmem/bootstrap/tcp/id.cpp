#include "shmem/bootstrap/tcp/id.hpp"

#include <arpa/inet.h>
#include <sys/random.h>

#include <cstdlib>

#include "shmem/base/error.hpp"

namespace railshmem::tcp {
namespace {

constexpr const char* kHead = "railshmem1";
constexpr std::size_t kLongest = 4096;
constexpr const char* kDigits = "0123456789abcdef";

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (c == separator)
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

bool is_address(const std::string& text) {
  in6_addr any;
  return ::inet_pton(AF_INET, text.c_str(), &any) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

bool parse_secret(const std::string& hex, Secret& secret) {
  if (hex.size() != 2 * secret.size()) return false;
  if (hex.find_first_not_of(kDigits) != std::string::npos) return false;
  for (std::size_t i = 0; i < secret.size(); ++i)
    secret[i] = static_cast<uint8_t>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
  return true;
}

bool parse_port(const std::string& digits, uint16_t& port) {
  if (digits.empty() || digits.size() > 5) return false;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return false;
  const unsigned long value = std::stoul(digits);
  port = static_cast<uint16_t>(value);
  return value > 0 && value <= UINT16_MAX;
}

}  // namespace

std::string JobId::str() const {
  std::string out = text(kHead, "/", port, "/");
  for (const uint8_t byte : secret) {
    out += kDigits[byte / 16];
    out += kDigits[byte % 16];
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) out += text(i == 0 ? "/" : ",", addresses[i]);
  return out;
}

JobId JobId::parse(const std::string& given) {
  const auto refuse = [&](const char* why) {
    fail(ErrorKind::argument, "'", given.substr(0, 200), "' is not a job id of this library: ", why,
         "; expected what shmem_get_unique_id returned");
  };
  if (given.size() > kLongest) refuse("it is too long");
  const std::vector<std::string> parts = split(given, '/');
  if (parts.size() != 4 || parts[0] != kHead) refuse("it is not railshmem1/port/secret/addresses");
  JobId id;
  if (!parse_port(parts[1], id.port)) refuse("the port is not a number from 1 to 65535");
  if (!parse_secret(parts[2], id.secret)) refuse("the secret is not 32 hexadecimal digits");
  id.addresses = split(parts[3], ',');
  for (const std::string& address : id.addresses)
    if (!is_address(address)) refuse("an address is neither IPv4 nor IPv6");
  return id;
}

Secret random_secret() {
  Secret out;
  if (::getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size()))
    fail(ErrorKind::init, "no random numbers for a job id: ", errno_text());
  return out;
}

}  // namespace railshmem::tcp
