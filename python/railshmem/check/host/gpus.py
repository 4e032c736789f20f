"""Whether NICs reach GPU memory: peer-memory modules, dma-buf, and what PCI puts in the way."""

from __future__ import annotations

import re
import struct

from railshmem.check.findings import NOTE, OK, Finding
from railshmem.check.host.rdma import DEVICES, ports
from railshmem.check.host.tree import Tree

PCI = "/sys/bus/pci/devices"
FIRST_WITH_DMABUF = (5, 12)
BRIDGE_CLASS = "0x0604"
# Where capabilities begin, and what they are called, by PCI Express.
EXTENDED, ACS, EXPRESS = 0x100, 0x0D, 0x10
REQUEST_REDIRECT = 1 << 2  # of the ACS control word
RELAXED_ORDERING = 1 << 4  # of the device control word


def gpus(tree: Tree, host: str) -> list[Finding]:
    """All of this file; nothing where there are no GPUs or no RDMA NICs to reach them."""
    found = [_ordering(tree, host)] if ports(tree) else []
    nvidia = tree.text("/proc/driver/nvidia/version")
    if not ports(tree) or (nvidia is None and not tree.exists("/sys/module/amdgpu")):
        return [finding for finding in found if finding is not None]
    found += [_peer_memory(tree, host, nvidia), _acs(tree, host), _iommu(tree, host)]
    return [finding for finding in found if finding is not None]


def _peer_memory(tree: Tree, host: str, nvidia: str | None) -> Finding:
    check = "GPU memory"
    if nvidia is None:
        return Finding(host, check, OK, "amdgpu exports it to NICs itself")
    ways = []
    if tree.exists("/sys/module/nvidia_peermem"):
        ways.append("nvidia-peermem")
    if "Open Kernel Module" in nvidia and _kernel(tree) >= FIRST_WITH_DMABUF:
        ways.append("dma-buf")
    if ways:
        return Finding(host, check, OK, f"NICs reach it through {' or '.join(ways)}")
    text = (
        "NICs do not reach it, so it is staged through host memory: load nvidia-peermem, or use "
        "the open kernel modules with a kernel of 5.12 or later (dma-buf)"
    )
    return Finding(host, check, NOTE, text)


def _kernel(tree: Tree) -> tuple[int, ...]:
    release = tree.text("/proc/sys/kernel/osrelease") or ""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def _acs(tree: Tree, host: str) -> Finding:
    """Bridges that redirect requests send NIC to GPU traffic through the CPU."""
    bridges = [
        name
        for name in tree.names(PCI)
        if (tree.text(f"{PCI}/{name}/class") or "").startswith(BRIDGE_CLASS)
    ]
    spaces = {name: tree.data(f"{PCI}/{name}/config") for name in bridges}
    if bridges and all(len(space) <= EXTENDED for space in spaces.values()):
        text = "only root can read it: `lspci -vvv | grep ACSCtl` should show ReqRedir- on bridges"
        return Finding(host, "PCI ACS", NOTE, text)
    redirecting = [name for name, space in spaces.items() if _redirects(space)]
    if not redirecting:
        return Finding(host, "PCI ACS", OK, f"none of {len(bridges)} bridges redirects requests")
    text = (
        f"{len(redirecting)} bridges redirect requests ({', '.join(redirecting[:4])}): traffic "
        "between NICs and GPUs takes the way through the CPU; turn ACS off in firmware or by setpci"
    )
    return Finding(host, "PCI ACS", NOTE, text)


def _redirects(space: bytes) -> bool:
    at = EXTENDED
    while EXTENDED <= at <= len(space) - 8:
        (head,) = struct.unpack_from("<I", space, at)
        if head & 0xFFFF == ACS:
            return bool(struct.unpack_from("<H", space, at + 6)[0] & REQUEST_REDIRECT)
        following = head >> 20
        if following <= at:  # 0 ends the list; what goes back would go round
            break
        at = following
    return False


def _iommu(tree: Tree, host: str) -> Finding:
    words = (tree.text("/proc/cmdline") or "").split()
    if not tree.names("/sys/class/iommu"):
        return Finding(host, "IOMMU", OK, "off")
    if "iommu=pt" in words or "iommu.passthrough=1" in words:
        return Finding(host, "IOMMU", OK, "on, and devices pass through")
    text = "on without passthrough: NICs and GPUs are slower; boot with iommu=pt unless it isolates"
    return Finding(host, "IOMMU", NOTE, text)


def _ordering(tree: Tree, host: str) -> Finding | None:
    """Whether NICs may relax PCI's order; RAILSHMEM_VERBS relaxed=on asks for it per region."""
    words = {
        device: _device_control(tree.data(f"{DEVICES}/{device}/device/config"))
        for device in sorted({port.device for port in ports(tree)})
    }
    known = {device: word for device, word in words.items() if word is not None}
    if not known:
        return None
    off = [device for device, word in known.items() if not word & RELAXED_ORDERING]
    if not off:
        return Finding(
            host, "PCI ordering", OK, "NICs may relax it: RAILSHMEM_VERBS relaxed=on works"
        )
    text = f"{', '.join(off)} may not relax it, so RAILSHMEM_VERBS relaxed=on changes nothing there"
    return Finding(host, "PCI ordering", OK, text)


def _device_control(space: bytes) -> int | None:
    at = space[0x34] if len(space) >= 64 else 0
    seen = set()
    while 0x40 <= at <= len(space) - 10 and at not in seen:
        seen.add(at)
        if space[at] == EXPRESS:
            return int(struct.unpack_from("<H", space, at + 8)[0])
        at = space[at + 1]
    return None
