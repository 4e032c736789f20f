#include "shmem/trace/moments.hpp"

#include "kernels/shmem/trace.hpp"
#include "shmem/base/error.hpp"

namespace railshmem::trace {
namespace {

using device::Moment;

struct Name {
  Moment moment;
  const char* kind;
  const char* category;
  const char* name;
  const char* bytes;
  const char* id;
  const char* where;
};

constexpr Name kNames[] = {
    {Moment::put, "span", "host", "put", "bytes", "-", "lane"},
    {Moment::get, "span", "host", "get", "bytes", "-", "lane"},
    {Moment::put_signal, "span", "host", "put_signal", "bytes", "-", "lane"},
    {Moment::atomic, "span", "host", "atomic", "bytes", "-", "lane"},
    {Moment::fence, "span", "host", "fence", "-", "-", "lane"},
    {Moment::quiet, "span", "host", "quiet", "-", "-", "lane"},
    {Moment::meeting, "span", "host", "meeting of a team", "-", "-", "team"},
    {Moment::collective, "span", "host", "collective", "-", "-", "team"},
    {Moment::malloc, "span", "host", "malloc", "bytes", "-", "-"},
    {Moment::free, "span", "host", "free", "-", "-", "-"},
    {Moment::ring_posted, "ring", "ring", "posted", "bytes", "command", "lane"},
    {Moment::ring_command, "command", "ring", "command", "bytes", "command", "lane"},
    {Moment::nic_posted, "posted", "nic", "request", "bytes", "request", "queue pair"},
    {Moment::nic_completed, "completed", "nic", "completion", "status", "request", "queue pair"},
    {Moment::ep_dispatch, "span", "ep", "dispatch", "-", "round", "-"},
    {Moment::ep_combine, "span", "ep", "combine", "-", "round", "-"},
    {Moment::ep_headers, "span", "ep", "headers and rows to other nodes", "-", "round", "-"},
    {Moment::ep_grants, "span", "ep", "places granted", "-", "round", "-"},
    {Moment::ep_place, "span", "ep", "rows placed", "-", "round", "-"},
    {Moment::ep_arrivals, "span", "ep", "arrivals", "-", "round", "-"},
    {Moment::ep_sums, "span", "ep", "sums", "-", "round", "-"},
};
static_assert(sizeof kNames / sizeof kNames[0] == number_of(Moment::waiting) - 1,
              "every moment has a name");

}  // namespace

std::string moments_text(const std::vector<std::string>& waits) {
  std::string out;
  for (const Name& row : kNames)
    out += text(number_of(row.moment), "\t", row.kind, "\t", row.category, "\t", row.name, "\t",
                row.bytes, "\t", row.id, "\t", row.where, "\n");
  for (std::size_t waiting = 0; waiting < waits.size(); ++waiting)
    out += text(number_of(Moment::waiting) + waiting, "\tspan\twait\twait: ", waits[waiting],
                "\texpected\theap offset\t-\n");
  return out;
}

}  // namespace railshmem::trace
