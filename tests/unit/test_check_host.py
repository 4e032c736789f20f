"""`railshmem check --host` on hosts that are made of files."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from railshmem.check.findings import NOTE, OK, WRONG, Finding
from railshmem.check.host.gpus import gpus
from railshmem.check.host.limits import limits, memory_lock
from railshmem.check.host.networks import interfaces, subnets
from railshmem.check.host.rdma import library, rdma
from railshmem.check.host.report import Host, host_findings, look_at
from railshmem.check.host.tree import Tree
from test_cli import needs_mpirun, run_tool

IB = "/sys/class/infiniband"
LOCKED = "Limit                     Soft Limit           Hard Limit           Units\n"
NVIDIA = "/proc/driver/nvidia/version"


class FakeHost:
    """A host below a folder; names are absolute, as on a real one."""

    def __init__(self, root: Path, name: str = "node1") -> None:
        self.root = root
        self.write("/proc/sys/kernel/hostname", name)
        self.write("/proc/sys/kernel/random/boot_id", f"boot-of-{name}")
        self.write("/proc/sys/kernel/osrelease", "6.1.0")
        self.lock("unlimited")
        (root / "dev/shm").mkdir(parents=True)

    @property
    def tree(self) -> Tree:
        return Tree(self.root, {})

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())

    def lock(self, limit: str) -> None:
        self.write("/proc/self/limits", f"{LOCKED}Max locked memory  {limit}  {limit}  bytes")

    def libraries(self, *names: str) -> None:
        for name in names:
            self.write(f"/usr/lib/x86_64-linux-gnu/{name}", "")

    def port(
        self, device: str, layer: str, netdev: str, state: str = "4: ACTIVE", mtu: int = 9000
    ) -> str:
        folder = f"{IB}/{device}/ports/1"
        self.write(f"{folder}/link_layer", layer)
        self.write(f"{folder}/state", state)
        self.write(f"{folder}/rate", "400 Gb/sec (4X NDR)")
        self.write(f"{folder}/gid_attrs/ndevs/0", netdev)
        self.write(f"/sys/class/net/{netdev}/mtu", str(mtu))
        self.write(f"/sys/class/net/{netdev}/operstate", "up")
        self.write("/dev/infiniband/uverbs0", "")
        return folder

    def gid(self, folder: str, index: int, gid: str, kind: str) -> None:
        self.write(f"{folder}/gids/{index}", gid)
        self.write(f"{folder}/gid_attrs/types/{index}", kind)

    def routes(self, *routes: tuple[str, str, str]) -> None:
        """(interface, network, mask), as the kernel writes them."""
        head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"
        lines = [f"{i} {word(n)} 00000000 0001 0 0 0 {word(m)} 0 0 0" for i, n, m in routes]
        self.write("/proc/net/route", "\n".join([head, *lines]))


def word(address: str) -> str:
    return bytes(int(part) for part in address.split("."))[::-1].hex().upper()


def status_of(findings: list[Finding], check: str) -> tuple[str, str]:
    (found,) = (finding for finding in findings if finding.check == check)
    return found.status, found.text


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def roce(host: FakeHost) -> FakeHost:
    """A sound host with a RoCE NIC."""
    host.libraries("libibverbs.so.1", "libibverbs.so.1.14.44.0", "libfabric.so.1.18.1")
    folder = host.port("mlx5_0", "Ethernet", "eth1")
    host.gid(folder, 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2")
    host.gid(folder, 2, "0000:0000:0000:0000:0000:ffff:0a01:0005", "IB/RoCE v1")
    host.gid(folder, 3, "0000:0000:0000:0000:0000:ffff:0a01:0005", "RoCE v2")
    host.routes(("eth1", "10.1.0.0", "255.255.0.0"))
    return host


# ---- RDMA ----


def test_a_sound_roce_host(roce: FakeHost) -> None:
    found = rdma(roce.tree, "node1")
    assert {f.status for f in found if not f.check.startswith("PFC")} == {OK}
    assert status_of(found, "libibverbs") == (OK, "libibverbs.so.1.14.44.0")
    assert status_of(found, "GIDs mlx5_0:1") == (OK, "RoCE v2, index 3: 10.1.0.5")
    assert "packets of 4096 bytes" in status_of(found, "MTU mlx5_0:1")[1]


def test_a_host_without_rdma_takes_tcp(host: FakeHost) -> None:
    found = rdma(host.tree, "node1")
    assert status_of(found, "libibverbs")[0] == OK
    assert status_of(found, "libfabric")[0] == NOTE
    assert status_of(found, "RDMA devices") == (
        OK,
        "none: jobs of several hosts take TCP, by libfabric",
    )


def test_devices_without_a_library_or_files(roce: FakeHost) -> None:
    for name in ("libibverbs.so.1", "libibverbs.so.1.14.44.0"):
        (roce.root / f"usr/lib/x86_64-linux-gnu/{name}").unlink()
    (roce.root / "dev/infiniband/uverbs0").unlink()
    found = rdma(roce.tree, "node1")
    assert status_of(found, "libibverbs")[0] == WRONG
    status, text = status_of(found, "device files")
    assert status == WRONG
    assert "containers: pass /dev/infiniband" in text


def test_libraries_of_the_users_path_count(host: FakeHost) -> None:
    host.write("/home/me/lib/libfabric.so.1.25.0", "")
    host.libraries("libfabric.so.1.9.2")
    assert library(host.tree, "libfabric.so") == "libfabric.so.1.9.2"
    mine = replace(host.tree, environment={"LD_LIBRARY_PATH": ":/home/me/lib"})
    assert library(mine, "libfabric.so") == "libfabric.so.1.25.0"


def test_ports_that_are_down(roce: FakeHost) -> None:
    roce.port("mlx5_1", "Ethernet", "eth2", state="1: DOWN")
    status, text = status_of(rdma(roce.tree, "node1"), "RDMA devices")
    assert status == NOTE
    assert "mlx5_1:1 Ethernet DOWN" in text
    roce.port("mlx5_0", "Ethernet", "eth1", state="1: DOWN")
    assert status_of(rdma(roce.tree, "node1"), "RDMA devices")[0] == WRONG


def test_a_roce_port_without_a_usable_gid(roce: FakeHost) -> None:
    folder = roce.port("mlx5_1", "Ethernet", "eth2")
    assert status_of(rdma(roce.tree, "n"), "GIDs mlx5_1:1")[0] == WRONG
    roce.gid(folder, 1, "fe80:0000:0000:0000:0000:0000:0000:0002", "RoCE v2")
    status, text = status_of(rdma(roce.tree, "n"), "GIDs mlx5_1:1")
    assert (status, "give the interface an IPv4 address" in text) == (NOTE, True)


@pytest.mark.parametrize(("mtu", "packet"), [(1500, 1024), (2500, 2048), (4000, 2048)])
def test_small_mtus_make_small_packets(roce: FakeHost, mtu: int, packet: int) -> None:
    roce.write("/sys/class/net/eth1/mtu", str(mtu))
    status, text = status_of(rdma(roce.tree, "n"), "MTU mlx5_0:1")
    assert status == NOTE
    assert f"eth1 has {mtu}: packets of {packet} bytes" in text


def test_pfc_and_ecn_where_the_driver_shows_them(roce: FakeHost) -> None:
    status, text = status_of(rdma(roce.tree, "n"), "PFC/ECN mlx5_0:1")
    assert status == NOTE
    assert "`dcb pfc show dev eth1`" in text
    for priority in range(8):
        roce.write(f"/sys/class/net/eth1/ecn/roce_np/enable/{priority}", str(int(priority == 3)))
    assert status_of(rdma(roce.tree, "n"), "PFC/ECN mlx5_0:1") == (OK, "ECN for priorities 3")


def test_partitions_of_infiniband(host: FakeHost) -> None:
    folder = host.port("mlx5_0", "InfiniBand", "ib0")
    assert status_of(rdma(host.tree, "n"), "partition mlx5_0:1")[0] == WRONG
    host.write(f"{folder}/pkeys/0", "0x7fff")
    assert status_of(rdma(host.tree, "n"), "partition mlx5_0:1")[0] == WRONG
    host.write(f"{folder}/pkeys/1", "0x8001")
    assert status_of(rdma(host.tree, "n"), "partition mlx5_0:1")[0] == NOTE
    host.write(f"{folder}/pkeys/0", "0xffff")
    assert status_of(rdma(host.tree, "n"), "partition mlx5_0:1")[0] == OK


def test_efa_needs_libfabric_and_not_libibverbs(host: FakeHost) -> None:
    host.port("rdmap0s6", "Unspecified", "eth1")
    found = rdma(host.tree, "n")
    assert status_of(found, "libfabric")[0] == WRONG
    assert status_of(found, "libibverbs")[0] == OK


# ---- interfaces ----


def test_subnets_that_two_interfaces_share(roce: FakeHost) -> None:
    assert status_of(interfaces(roce.tree, "n"), "subnets")[0] == OK
    net, mask = "10.1.0.0", "255.255.0.0"
    roce.routes(("eth1", net, mask), ("eth2", net, mask), ("docker0", net, mask))
    assert subnets(roce.tree) == {"10.1.0.0/16": ["eth1", "eth2"]}
    status, text = status_of(interfaces(roce.tree, "n"), "subnets")
    assert status == WRONG  # eth1 is a RoCE NIC's
    assert "eth1, eth2 in 10.1.0.0/16: they answer ARP for each other" in text
    roce.write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1")
    assert status_of(interfaces(roce.tree, "n"), "subnets")[0] == NOTE


def test_interfaces_are_listed(host: FakeHost) -> None:
    assert status_of(interfaces(host.tree, "n"), "interfaces")[0] == NOTE
    host.routes(("eth0", "192.168.7.0", "255.255.255.0"))
    host.write("/sys/class/net/eth0/mtu", "1500")
    host.write("/sys/class/net/eth0/speed", "25000")
    host.write("/sys/class/net/eth0/operstate", "up")
    said = status_of(interfaces(host.tree, "n"), "interfaces")
    assert said == (OK, "eth0 192.168.7.0/24 up, MTU 1500, 25 Gb/s")


# ---- limits ----


def test_locked_memory_matters_to_rdma_nics(host: FakeHost) -> None:
    assert memory_lock(host.tree, "n").status == OK
    host.lock("8388608")
    assert memory_lock(host.tree, "n").status == NOTE
    host.port("mlx5_0", "InfiniBand", "ib0")
    found = memory_lock(host.tree, "n")
    assert found.status == WRONG
    assert "8 MiB may be locked" in found.text
    assert "--ulimit memlock=-1" in found.text


def test_governors_and_pages(host: FakeHost) -> None:
    host.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance")
    assert status_of(limits(host.tree, "n"), "CPU governor") == (OK, "performance")
    host.write("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave")
    assert status_of(limits(host.tree, "n"), "CPU governor")[0] == NOTE
    host.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    assert "transparent: madvise" in status_of(limits(host.tree, "n"), "huge pages")[1]


@pytest.mark.parametrize(
    ("environment", "status", "text"),
    [
        ({}, OK, "all as by default"),
        ({"RAILSHMEM_LANES": "2", "HOME": "/"}, OK, "RAILSHMEM_LANES=2"),
        ({"RAILSHMEM_LANE": "2"}, WRONG, "RAILSHMEM_LANE: no such setting"),
    ],
)
def test_settings(host: FakeHost, environment: Mapping[str, str], status: str, text: str) -> None:
    found = limits(replace(host.tree, environment=environment), "n")
    assert status_of(found, "settings")[0] == status
    assert text in status_of(found, "settings")[1]


# ---- GPUs ----


def config_space(acs: int | None, control: int = 0) -> bytes:
    space = bytearray(4096)
    space[0x34] = 0x40
    space[0x40:0x42] = bytes((0x10, 0))  # PCI Express, the last one
    struct.pack_into("<H", space, 0x48, control)
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x200 << 20)  # another capability, then ...
    if acs is not None:
        struct.pack_into("<IHH", space, 0x200, 0x0D, 0, acs)
    return bytes(space)


def test_gpu_memory_for_nics(roce: FakeHost) -> None:
    assert all(f.check != "GPU memory" for f in gpus(roce.tree, "n"))  # no GPU
    roce.write(NVIDIA, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86")
    status, text = status_of(gpus(roce.tree, "n"), "GPU memory")
    assert status == NOTE
    assert "staged through host memory" in text
    roce.write("/sys/module/nvidia_peermem/refcnt", "0")
    assert "nvidia-peermem" in status_of(gpus(roce.tree, "n"), "GPU memory")[1]
    roce.write(NVIDIA, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86")
    assert "or dma-buf" in status_of(gpus(roce.tree, "n"), "GPU memory")[1]


def test_bridges_that_redirect(roce: FakeHost) -> None:
    roce.write(NVIDIA, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86")
    bridge = "/sys/bus/pci/devices/0000:00:01.0"
    roce.write(f"{bridge}/class", "0x060400")
    roce.write(f"{bridge}/config", config_space(None))
    assert status_of(gpus(roce.tree, "n"), "PCI ACS")[0] == OK
    roce.write(f"{bridge}/config", config_space(acs=0x1D))
    status, text = status_of(gpus(roce.tree, "n"), "PCI ACS")
    assert (status, "0000:00:01.0" in text) == (NOTE, True)
    roce.write(f"{bridge}/config", config_space(None)[:64])  # what others than root see
    assert "only root can read it" in status_of(gpus(roce.tree, "n"), "PCI ACS")[1]


def test_relaxed_ordering_and_the_iommu(roce: FakeHost) -> None:
    roce.write(f"{IB}/mlx5_0/device/config", config_space(None, control=0x10))
    assert "NICs may relax it" in status_of(gpus(roce.tree, "n"), "PCI ordering")[1]
    roce.write(f"{IB}/mlx5_0/device/config", config_space(None, control=0))
    assert "mlx5_0 may not relax it" in status_of(gpus(roce.tree, "n"), "PCI ordering")[1]
    roce.write(NVIDIA, "Open Kernel Module")
    roce.write("/sys/class/iommu/dmar0/name", "")
    assert status_of(gpus(roce.tree, "n"), "IOMMU")[0] == NOTE
    roce.write("/proc/cmdline", "quiet iommu=pt")
    assert status_of(gpus(roce.tree, "n"), "IOMMU")[0] == OK


def test_a_broken_list_of_capabilities_ends(roce: FakeHost) -> None:
    roce.write(NVIDIA, "Open Kernel Module")
    space = bytearray(config_space(None))
    space[0x40:0x42] = bytes((0x01, 0x40))  # points at itself
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x100 << 20)
    roce.write("/sys/bus/pci/devices/0000:00:01.0/class", "0x060400")
    roce.write("/sys/bus/pci/devices/0000:00:01.0/config", bytes(space))
    roce.write(f"{IB}/mlx5_0/device/config", bytes(space))
    assert status_of(gpus(roce.tree, "n"), "PCI ACS")[0] == OK


# ---- several hosts ----


def test_what_hosts_tell_alike_is_one_line_and_differences_are_named() -> None:
    alike, other = Finding("a", "MTU", OK, "9000"), Finding("c", "MTU", NOTE, "1500")
    hosts = [
        Host("a", "1", [alike, replace(alike, check="limits")]),
        Host("a", "1", [alike, replace(alike, check="limits")]),  # another PE of it
        Host("b", "2", [replace(alike, where="b"), Finding("b", "limits", OK, "9000")]),
        Host("c", "3", [other, Finding("c", "limits", OK, "9000")]),
    ]
    assert host_findings(hosts) == [
        Finding("all 3 hosts", "limits", OK, "9000"),
        Finding("a, b", "MTU", OK, "9000"),
        Finding("c", "MTU", NOTE, "1500"),
    ]


def test_names_and_boot_ids_of_hosts() -> None:
    same_name = host_findings([Host("a", "1", []), Host("a", "2", [])])
    assert [(f.check, f.status) for f in same_name] == [("host name", NOTE)]
    containers = host_findings([Host("a", "1", []), Host("b", "1", [])])
    assert status_of(containers, "boot id") == (OK, "a, b run under one kernel, as containers do")
    assert status_of(host_findings([Host("a", "", [])]), "boot id")[0] == WRONG


def test_a_whole_host(roce: FakeHost) -> None:
    seen = look_at(roce.tree)
    assert (seen.name, seen.boot_id) == ("node1", "boot-of-node1")
    assert all(finding.where == "node1" for finding in seen.findings)
    assert WRONG not in {finding.status for finding in seen.findings}


# ---- the command ----


def test_this_host_as_text_and_as_json() -> None:
    done = run_tool(0, "check", "--host")
    assert done.stdout.startswith("railshmem check")
    assert os.uname().nodename in done.stdout
    as_json = run_tool(0, "check", "--host", "--json")
    findings = json.loads(as_json.stdout)
    assert {"where", "check", "status", "text"} == set(findings[0])
    sound = all(finding["status"] != WRONG for finding in findings)
    assert done.returncode == as_json.returncode == (0 if sound else 1)


def test_an_unknown_setting_is_a_problem() -> None:
    done = run_tool(0, "check", "--host", settings={"RAILSHMEM_RAIL": "2"})
    assert done.returncode == 1
    assert "RAILSHMEM_RAIL: no such setting" in " ".join(done.stdout.split())


@needs_mpirun
def test_pes_of_one_host_tell_the_same_once() -> None:
    done = run_tool(2, "check", "--host", "--json")
    checks = [(f["check"], f["text"]) for f in json.loads(done.stdout)]
    assert len(checks) == len(set(checks))
