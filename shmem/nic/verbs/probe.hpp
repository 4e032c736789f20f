// Whether a NIC does what its device promises.
#pragma once

#include "shmem/nic/nic.hpp"

namespace railshmem::nic::verbs {

// Does a FETCH_AND_ADD and a COMPARE_AND_SWAP on a word of this process, through the NIC and back,
// and looks whether word and results are right: some devices report success and do nothing. Bounded
// in time.
bool atomics_work(Nic& nic);

}  // namespace railshmem::nic::verbs
