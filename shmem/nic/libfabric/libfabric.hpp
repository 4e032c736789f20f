// NICs that libfabric drives: tcp on any host, EFA, Slingshot. The library is opened at run time;
// where it is absent nothing fails but this provider.
//
//   abi         what of libfabric's binary interface is used, and nothing else
//   library     libfabric.so.1, its exported calls, and handles that close themselves
//   interfaces  the host's network interfaces: whose an address is, its network, whether it is up
//   discovery   which of libfabric's NICs a job may use
//   regions     registered memory by key
//   operations  what one endpoint has in libfabric's hands
//   endpoint, libfabric_nic, provider   the interface of nic.hpp on top
//
// One domain and one reliable-datagram endpoint per NIC; a connection of nic.hpp is an entry of its
// address vector and a tag. A WRITE completes when the peer has the data (delivery complete). What
// nic.hpp's queue pairs do and these cannot: the receiver of a message without a buffer keeps it
// until one is posted; shut() does not keep the peer's late WRITEs out; a peer that falls silent
// without closing its connections is noticed when the transport gives up, not by the provider.
#pragma once

#include <memory>
#include <string>

#include "shmem/base/settings.hpp"
#include "shmem/nic/nic.hpp"

namespace railshmem::nic {

// Why none of this host's NICs can be used, in one sentence; empty: at least one can. `nics`: see
// selection.hpp; it matches the domain, the interface and the interface's address.
std::string why_no_libfabric(const std::string& nics, const LibfabricSettings& settings);

// Throws Error(init) with that reason.
std::unique_ptr<Provider> make_libfabric_provider(const std::string& nics,
                                                  const LibfabricSettings& settings);

}  // namespace railshmem::nic
