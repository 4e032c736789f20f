"""Network interfaces: addresses by subnet, which is how rails are found, and ARP between them."""

from __future__ import annotations

import ipaddress
from collections import defaultdict

from railshmem.check.findings import NOTE, OK, WRONG, Finding
from railshmem.check.host.rdma import ETHERNET, ports
from railshmem.check.host.tree import Tree

NETS = "/sys/class/net"
VIRTUAL = ("docker", "veth", "virbr", "br-", "cni", "flannel", "cali")


def interfaces(tree: Tree, host: str) -> list[Finding]:
    """All of this file."""
    return [_usable(tree, host), _overlap(tree, host)]


def subnets(tree: Tree) -> dict[str, list[str]]:
    """Interfaces by the IPv4 subnet that they reach without a gateway."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (tree.text("/proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) < 8 or int(words[2], 16) != 0 or int(words[7], 16) == 0:
            continue
        if words[0].startswith(VIRTUAL):
            continue
        network = ipaddress.IPv4Network((_address(words[1]), str(_address(words[7]))), strict=False)
        if not network.is_link_local and words[0] not in found[str(network)]:
            found[str(network)].append(words[0])
    return dict(found)


def _address(word: str) -> ipaddress.IPv4Address:
    """The kernel writes the bytes of the address as a little-endian number."""
    return ipaddress.IPv4Address(bytes.fromhex(word)[::-1])


def _usable(tree: Tree, host: str) -> Finding:
    found = subnets(tree)
    if not found:
        text = "no interface has an IPv4 subnet: this host reaches no other by TCP or RoCE v2"
        return Finding(host, "interfaces", NOTE, text)
    parts = []
    for network, names in found.items():
        for name in names:
            mtu, speed = tree.number(f"{NETS}/{name}/mtu"), tree.number(f"{NETS}/{name}/speed")
            state = tree.text(f"{NETS}/{name}/operstate") or "unknown"
            rate = f", {speed / 1000:g} Gb/s" if speed and speed > 0 else ""
            parts.append(f"{name} {network} {state}, MTU {mtu or '?'}{rate}")
    return Finding(host, "interfaces", OK, "; ".join(parts))


def _overlap(tree: Tree, host: str) -> Finding:
    """Two NICs in one subnet answer each other's ARP: what is for one rail comes over another."""
    shared = {network: names for network, names in subnets(tree).items() if len(names) > 1}
    if not shared:
        return Finding(host, "subnets", OK, "no two interfaces share one, so each can be a rail")
    listed = "; ".join(f"{', '.join(names)} in {network}" for network, names in shared.items())
    loose = sorted({name for names in shared.values() for name in names if not _strict(tree, name)})
    if not loose:
        text = f"{listed}: one rail each only where both reach the same peers; arp_ignore is set"
        return Finding(host, "subnets", NOTE, text)
    roce = {port.netdev for port in ports(tree) if port.layer == ETHERNET and port.up}
    hint = (
        f"{listed}: they answer ARP for each other ({', '.join(loose)}), so traffic takes another "
        "NIC than it should: give every rail a subnet, or set net.ipv4.conf.all.arp_ignore=1 and "
        "arp_announce=2"
    )
    return Finding(host, "subnets", WRONG if roce & set(loose) else NOTE, hint)


def _strict(tree: Tree, name: str) -> bool:
    values = (tree.number(f"/proc/sys/net/ipv4/conf/{conf}/arp_ignore") for conf in ("all", name))
    return max(value or 0 for value in values) > 0
