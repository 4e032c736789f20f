#include "shmem/api/nic_choice.hpp"

#include <vector>

#include "shmem/api/pe_card.hpp"
#include "shmem/base/error.hpp"
#include "shmem/nic/libfabric/libfabric.hpp"
#include "shmem/nic/verbs/verbs.hpp"
#include "shmem/topology/host_identity.hpp"

namespace railshmem {
namespace {

// What each PE asks for.
struct Wish {
  ProviderKind asked = ProviderKind::automatic;
  bool emulation = false;
  FixedText<64> boot_id;
};

// What each PE of several hosts has. Empty: it can use such NICs.
struct Offer {
  FixedText<256> no_verbs;
  FixedText<256> no_libfabric;
};

std::string first_without(const std::vector<Offer>& offers, FixedText<256> Offer::* why) {
  for (std::size_t pe = 0; pe < offers.size(); ++pe)
    if (const std::string text_of = (offers[pe].*why).str(); !text_of.empty())
      return text("PE ", pe, ": ", text_of);
  return {};
}

}  // namespace

NicChoice choose_nics(const Settings& settings, Bootstrap& bootstrap) {
  Wish mine;
  mine.asked = settings.provider;
  mine.emulation = settings.rails > 0 || settings.nodes > 1;
  mine.boot_id = boot_id();
  bool one_host = true;
  for (const Wish& wish : allgather(bootstrap, mine)) {
    // Different settings are named by the exchange of cards, which follows.
    if (wish.asked != mine.asked || wish.emulation != mine.emulation)
      return {ProviderKind::none, "the PEs ask for different NICs"};
    one_host = one_host && wish.boot_id.str() == mine.boot_id.str();
  }
  if (settings.provider != ProviderKind::automatic)
    return {settings.provider, text("RAILSHMEM_PROVIDER=", name_of(settings.provider))};
  if (mine.emulation)
    return {ProviderKind::emulated,
            settings.nodes > 1 ? "RAILSHMEM_NODES splits the job" : "RAILSHMEM_RAILS is set"};
  if (one_host) return {ProviderKind::none, "all PEs are on one host"};
  Offer offer;
  offer.no_verbs = nic::why_no_verbs(settings.nics, settings.verbs);
  offer.no_libfabric = nic::why_no_libfabric(settings.nics, settings.libfabric);
  const std::vector<Offer> offers = allgather(bootstrap, offer);
  const std::string no_verbs = first_without(offers, &Offer::no_verbs);
  if (no_verbs.empty()) return {ProviderKind::verbs, "every PE has a NIC that libibverbs drives"};
  const std::string no_libfabric = first_without(offers, &Offer::no_libfabric);
  if (no_libfabric.empty()) return {ProviderKind::libfabric, text("no verbs NIC: ", no_verbs)};
  return {ProviderKind::none,
          text("no verbs NIC: ", no_verbs, "; no libfabric NIC: ", no_libfabric)};
}

}  // namespace railshmem
