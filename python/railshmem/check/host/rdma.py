"""RDMA devices: libraries, devices and ports, GIDs, and what keeps RoCE from dropping packets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from railshmem.check.findings import NOTE, OK, WRONG, Finding
from railshmem.check.host.tree import Tree

DEVICES = "/sys/class/infiniband"
FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/amazon/efa/lib")
# A packet of 4096 bytes with the headers of RoCE, and the next smaller one.
ROCE_MTUS = {4096: 4200, 2048: 2200}
ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"


@dataclass(frozen=True)
class Port:
    """One port of one device."""

    device: str
    number: str
    layer: str
    state: str
    rate: str
    netdev: str | None

    @property
    def name(self) -> str:
        """As RAILSHMEM_NICS takes it."""
        return f"{self.device}:{self.number}"

    @property
    def folder(self) -> str:
        """Of its files."""
        return f"{DEVICES}/{self.device}/ports/{self.number}"

    @property
    def up(self) -> bool:
        """Whether it carries data."""
        return self.state == "ACTIVE"

    @property
    def is_efa(self) -> bool:
        """EFA has no link layer that others know."""
        return self.layer not in (ETHERNET, INFINIBAND)


def ports(tree: Tree) -> list[Port]:
    """All ports of all devices."""
    return list(_ports(tree))


def _ports(tree: Tree) -> Iterator[Port]:
    for device in tree.names(DEVICES):
        netdevs = tree.names(f"{DEVICES}/{device}/device/net")
        for number in tree.names(f"{DEVICES}/{device}/ports"):
            folder = f"{DEVICES}/{device}/ports/{number}"
            state = (tree.text(f"{folder}/state") or "unknown").partition(": ")
            yield Port(
                device,
                number,
                tree.text(f"{folder}/link_layer") or "unknown",
                state[2] or state[0],
                tree.text(f"{folder}/rate") or "rate unknown",
                tree.text(f"{folder}/gid_attrs/ndevs/0") or (netdevs[0] if netdevs else None),
            )


def rdma(tree: Tree, host: str) -> list[Finding]:
    """All of this file."""
    found = ports(tree)
    out = [*_libraries(tree, host, found), *_devices(tree, host, found)]
    for port in found:
        if not port.up:
            continue
        if port.layer == ETHERNET:
            out += [_gids(tree, host, port), _mtu(tree, host, port), *_lossless(tree, host, port)]
        elif port.layer == INFINIBAND:
            out.append(_partition(tree, host, port))
    return out


def library(tree: Tree, name: str) -> str | None:
    """The newest file of a library that the loader could find: "libibverbs.so.1.14.39.0"."""
    of_user = tree.environment.get("LD_LIBRARY_PATH", "").split(":")
    patterns = [f"{folder}/{name}.*" for folder in (*of_user, *FOLDERS) if folder]
    patterns += [f"{folder}/*-linux-gnu/{name}.*" for folder in FOLDERS[:3]]
    found = [file.rpartition("/")[2] for pattern in patterns for file in tree.found(pattern)]
    return max(found, key=lambda file: [int(n) for n in re.findall(r"\d+", file)], default=None)


def _libraries(tree: Tree, host: str, found: list[Port]) -> list[Finding]:
    verbs, fabric = library(tree, "libibverbs.so"), library(tree, "libfabric.so")
    out = [Finding(host, "libibverbs", OK, verbs)] if verbs else []
    if not verbs and any(not port.is_efa for port in found):
        text = "not found, so NICs of verbs cannot be used: install rdma-core (libibverbs1)"
        out.append(Finding(host, "libibverbs", WRONG, text))
    elif not verbs:
        out.append(Finding(host, "libibverbs", OK, "not found; no device needs it"))
    if fabric:
        out.append(Finding(host, "libfabric", OK, fabric))
    elif any(port.is_efa for port in found):
        text = "not found, so EFA cannot be used: install the EFA software or libfabric1"
        out.append(Finding(host, "libfabric", WRONG, text))
    else:
        text = "not found: without RDMA NICs only PEs of one host can talk; install libfabric1"
        out.append(Finding(host, "libfabric", NOTE, text))
    return out


def _devices(tree: Tree, host: str, found: list[Port]) -> list[Finding]:
    if not found:
        text = "none: jobs of several hosts take TCP, by libfabric"
        return [Finding(host, "RDMA devices", OK, text)]
    up = [port for port in found if port.up]
    listed = ", ".join(f"{p.name} {p.layer} {p.state} {p.rate}" for p in found)
    out = []
    if not up:
        text = f"no port is ACTIVE: {listed}: look at cables, switch and subnet manager"
        out.append(Finding(host, "RDMA devices", WRONG, text))
    else:
        down = len(found) - len(up)
        text = f"{listed}; {down} not ACTIVE, which are not used" if down else listed
        out.append(Finding(host, "RDMA devices", NOTE if down else OK, text))
    nodes = [f"/dev/infiniband/{name}" for name in tree.names("/dev/infiniband")]
    nodes = [node for node in nodes if "uverbs" in node]
    if not nodes:
        text = (
            "/dev/infiniband/uverbs* is missing: load ib_uverbs; containers: pass /dev/infiniband"
        )
        out.append(Finding(host, "device files", WRONG, text))
    elif closed := [node for node in nodes if not tree.may_open(node)]:
        text = f"{', '.join(closed)} may not be opened by this user: mode 0666 is usual (udev)"
        out.append(Finding(host, "device files", WRONG, text))
    else:
        out.append(Finding(host, "device files", OK, f"{len(nodes)} of /dev/infiniband/uverbs*"))
    return out


def _gids(tree: Tree, host: str, port: Port) -> Finding:
    check = f"GIDs {port.name}"
    second = []
    for index in tree.names(f"{port.folder}/gid_attrs/types"):
        if (tree.text(f"{port.folder}/gid_attrs/types/{index}") or "").lower() == "roce v2":
            second.append((int(index), tree.text(f"{port.folder}/gids/{index}") or ""))
    if not second:
        text = "no RoCE v2 GID: give the interface an address, and see that RoCE v2 is on"
        return Finding(host, check, WRONG, text)
    for number, gid in sorted(second):
        address = _address_of(gid)
        if address is not None and not address.is_link_local:
            return Finding(host, check, OK, f"RoCE v2, index {number}: {address}")
    text = "RoCE v2 for link-local addresses only: give the interface an IPv4 address"
    return Finding(host, check, NOTE, text)


def _address_of(gid: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        six = ipaddress.IPv6Address(gid)
    except ValueError:
        return None
    return six.ipv4_mapped or six


def _mtu(tree: Tree, host: str, port: Port) -> Finding:
    check = f"MTU {port.name}"
    mtu = tree.number(f"/sys/class/net/{port.netdev}/mtu") if port.netdev else None
    if mtu is None:
        return Finding(host, check, NOTE, "unknown: its network interface is not in this namespace")
    packet = next((size for size, needed in ROCE_MTUS.items() if mtu >= needed), 1024)
    text = f"{port.netdev} has {mtu}: packets of {packet} bytes"
    if packet == 4096:
        return Finding(host, check, OK, text)
    hint = f"{text}; 4200 or more, on all hosts and switches, makes them 4096"
    return Finding(host, check, NOTE, hint)


def _lossless(tree: Tree, host: str, port: Port) -> Iterator[Finding]:
    """PFC and ECN as vendors' drivers show them; other drivers only answer netlink."""
    check = f"PFC/ECN {port.name}"
    folder = f"/sys/class/net/{port.netdev}"
    priorities = tree.names(f"{folder}/ecn/roce_np/enable")
    enabled = [p for p in priorities if tree.number(f"{folder}/ecn/roce_np/enable/{p}")]
    pfc = tree.text(f"{folder}/qos/pfc")
    if not priorities and pfc is None:
        text = (
            f"not in sysfs: `dcb pfc show dev {port.netdev}` and the switch tell; traffic of "
            "RAILSHMEM_VERBS tc=N must fall into a class that has PFC, ECN or both"
        )
        yield Finding(host, check, NOTE, text)
        return
    if priorities:
        text = f"ECN for priorities {', '.join(enabled) or 'none'}"
        hint = "" if enabled else ": without it, and without PFC, congestion drops packets"
        yield Finding(host, check, OK if enabled else NOTE, text + hint)
    if pfc is not None:
        yield Finding(host, check, OK if "1" in pfc else NOTE, f"PFC by priority: {pfc}")


def _partition(tree: Tree, host: str, port: Port) -> Finding:
    check = f"partition {port.name}"
    keys = (tree.text(f"{port.folder}/pkeys/{index}") for index in range(16))
    member = sorted({key for key in keys if key and int(key, 16) & 0x7FFF})
    if not member:
        return Finding(host, check, WRONG, "in none: ask the administrator of the subnet manager")
    limited = [key for key in member if not int(key, 16) & 0x8000]
    text = f"P_Key {', '.join(member)}"
    if limited:
        hint = f"{text}: limited members ({', '.join(limited)}) cannot reach each other"
        return Finding(host, check, NOTE if len(limited) < len(member) else WRONG, hint)
    return Finding(host, check, OK, text)
