// NICs without hardware. Their queues have the mlx5 layout; what peers must see lives in one shared
// segment per PE. The owner's thread is the NIC's engine: Nic::progress reads the entries that were
// posted and moves the data straight between local memory and the peer's, which it has mapped.
//
//   layout        what the shared segment holds
//   segments      segments by handle, mapped once per process
//   regions       the table of registered memory, the owner's side and the readers'
//   decoder       one work-queue entry, from its bytes, checked
//   peer, connection   another NIC, and one of its queue pairs, as an engine sees them
//   completions   completion rings
//   reordering    the window of a network that does not keep order
//   engine, operations   execute the entries of one queue pair
//   endpoint, emulated_nic, provider   the interface of nic.hpp on top
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "shmem/base/settings.hpp"
#include "shmem/nic/moves/queue.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic {

// `rails` NICs named emu0, emu1, ... of PE `pe`, whose GPU, if it has one, is `site`. `moves`
// outlives them and is driven (MoveQueue::progress) by the thread that drives them: it moves what
// lies in a GPU's memory; null where nothing does.
std::unique_ptr<Provider> make_emulated_provider(int pe, uint32_t rails,
                                                 const EmulatedSettings& settings,
                                                 const std::optional<gpu::Site>& site = {},
                                                 MoveQueue* moves = nullptr);

}  // namespace railshmem::nic
