// The names of what timelines show.
#pragma once

#include <string>
#include <vector>

namespace railshmem::trace {

// One line per moment, for the head of every file: number, kind, category, name, and what `bytes`,
// `id` and `where` mean ("-": nothing), separated by tabs. Kinds: span and instant; ring and
// command, joined by their id; posted and completed, joined by rail, queue pair and id.
// `waits` are the names of device::Waiting, in their order.
std::string moments_text(const std::vector<std::string>& waits);

}  // namespace railshmem::trace
