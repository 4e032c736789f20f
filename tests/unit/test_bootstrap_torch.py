"""Joining a job through a torch.distributed group: the real one where torch is, else its shape."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from railshmem import torch_group
from railshmem.errors import InitError, RailshmemError, WaitTimeout


class Tensor(list):  # type: ignore[type-arg]
    """What share_id uses of torch's: bytes in a place."""

    device: Any = None

    def tolist(self) -> list[int]:
        return list(self)


class Group:
    """A process group whose ranks are threads, of which `absent` never come."""

    def __init__(self, size: int, backend: str = "gloo", absent: int = 0) -> None:
        self.size, self.backend, self.absent = size, backend, absent
        self.lock = threading.Lock()
        self.tensors: dict[int, Tensor] = {}
        self.mine = threading.local()

    def is_complete(self) -> bool:
        with self.lock:
            return len(self.tensors) == self.size


def make_torch() -> ModuleType:
    def zeros(count: int, dtype: Any, device: Any) -> Tensor:
        out = Tensor([0] * count)
        out.device = device
        return out

    def all_gather(out: list[Tensor], mine: Tensor, group: Group, async_op: bool) -> Any:
        assert async_op
        with group.lock:
            group.tensors[group.mine.rank] = mine

        def wait() -> None:
            for rank, tensor in group.tensors.items():
                out[rank][:] = tensor

        return SimpleNamespace(is_completed=group.is_complete, wait=wait)

    torch = ModuleType("torch")
    members: dict[str, Any] = {
        "uint8": "uint8",
        "zeros": zeros,
        "zeros_like": lambda tensor: zeros(len(tensor), "uint8", tensor.device),
        "tensor": lambda values, dtype, device: values,
        "device": lambda kind, index: f"{kind}:{index}",
        "cuda": SimpleNamespace(current_device=lambda: 3),
        "distributed": SimpleNamespace(
            get_rank=lambda group: group.mine.rank,
            get_world_size=lambda group: group.size,
            get_backend=lambda group: group.backend,
            all_gather=all_gather,
        ),
    }
    for name, member in members.items():
        setattr(torch, name, member)
    return torch


@pytest.fixture(autouse=True)
def torch_of_threads(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setitem(sys.modules, "torch", make_torch())
    monkeypatch.setitem(sys.modules, "torch.distributed", sys.modules["torch"].distributed)


def share(group: Group, make_id: Any, timeout_s: float = 30) -> dict[int, Any]:
    """What share_id gave or raised on each rank that came."""
    results: dict[int, Any] = {}

    def come(rank: int) -> None:
        group.mine.rank = rank
        try:
            results[rank] = torch_group.share_id(group, make_id, timeout_s)
        except RailshmemError as error:
            results[rank] = error

    threads = [threading.Thread(target=come, args=[r]) for r in range(group.size - group.absent)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("backend", ["gloo", "nccl", "cpu:gloo,cuda:nccl"])
def test_the_id_of_the_first_rank_is_everybodys(backend: str) -> None:
    group = Group(3, backend)
    made: list[str] = []

    def make_id() -> str:
        made.append("railshmem1/1/00/127.0.0.1")
        return made[-1]

    assert share(group, make_id) == {rank: (made[0], rank, 3) for rank in range(3)}
    assert len(made) == 1
    expected = "cuda:3" if backend == "nccl" else "cpu"
    assert {tensor.device for tensor in group.tensors.values()} == {expected}


def test_without_an_id_every_rank_hears_why() -> None:
    """The first rank raised, and the others waited for its id."""

    def make_id() -> str:
        raise InitError("RAILSHMEM_INTERFACE=eth77: this host has lo (127.0.0.1)")

    results = share(Group(3), make_id)
    assert len(results) == 3
    for error in results.values():
        assert isinstance(error, InitError)
        assert "RAILSHMEM_INTERFACE=eth77" in str(error)


def test_a_rank_that_does_not_come_does_not_hang_the_others() -> None:
    results = share(Group(3, absent=1), lambda: "id", timeout_s=0.1)
    assert sorted(results) == [0, 1]
    for rank, error in results.items():
        assert isinstance(error, WaitTimeout)
        assert f"rank {rank} of the process group waited 0.1 s for the other 2" in str(error)


def test_a_process_outside_of_the_group_is_told() -> None:
    group = Group(2)
    group.mine.rank = -1
    with pytest.raises(InitError, match="this process is not in the process group"):
        torch_group.share_id(group, lambda: "id", 1)


RANK = """
import os, sys
import torch.distributed as dist
import numpy as np
import railshmem as r
me, n, port = (int(word) for word in sys.argv[1:])
dist.init_process_group("gloo", rank=me, world_size=n, init_method=f"tcp://127.0.0.1:{port}")
halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
for group in (halves[me % 2], dist.group.WORLD):
    r.shmem_init(group=group, settings={"RAILSHMEM_HEAP_SIZE": "4M"})
    assert (r.shmem_my_pe(), r.shmem_n_pes()) == (dist.get_rank(group), dist.get_world_size(group))
    mine = r.shmem_array(1, np.int64)
    mine[0] = me
    r.shmem_barrier_all()
    seen = np.zeros(1, np.int64)
    r.shmem_get(seen, mine, (r.shmem_my_pe() + 1) % r.shmem_n_pes())
    assert seen[0] == (me + (2 if group is halves[me % 2] else 1)) % 4
    r.shmem_finalize()
assert "mpi4py" not in sys.modules
"""

if importlib.util.find_spec("torch"):  # too large to be required

    def test_groups_of_the_real_torch() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(rank), "4", str(port)],
                env={k: v for k, v in os.environ.items() if not k.startswith("RAILSHMEM_")},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(4)
        ]
        errs = [rank.communicate(timeout=100)[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * 4, errs
