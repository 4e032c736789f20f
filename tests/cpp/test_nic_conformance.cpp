// The emulated NICs, ordered and not, against what every NIC must do.
#include "shmem/nic/emulated/emulated.hpp"
#include "tests/cpp/nic_conformance.hpp"

namespace {

template <bool kOrdered>
struct EmulatedWire {
  static constexpr int kRounds = 20000;
  static constexpr bool kIsolated = true;
  static constexpr bool kRefusesUnready = true;

  static std::string absent() { return ""; }
  static EmulatedSettings settings() {
    EmulatedSettings out;
    out.ordered = kOrdered;
    return out;
  }
  Provider& provider(int pe) { return *providers[static_cast<std::size_t>(pe)]; }

  std::unique_ptr<Provider> providers[2] = {make_emulated_provider(0, 2, settings()),
                                            make_emulated_provider(1, 2, settings())};
};

using OrderedWire = EmulatedWire<true>;
using UnorderedWire = EmulatedWire<false>;

}  // namespace

TYPE_TO_STRING(OrderedWire);
TYPE_TO_STRING(UnorderedWire);

NIC_CONFORMANCE(OrderedWire, UnorderedWire);
