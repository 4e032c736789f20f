"""Joining a job through a torch.distributed process group.

The group carries one thing: the id of a job over TCP, from its first rank to the others. Everything
else is that job's: waits with deadlines that name who is missing, and an end for all when one ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from railshmem.errors import InitError, WaitTimeout

# An id, or why there is none; the rest is zeros.
_MESSAGE_BYTES = 4096


def share_id(group: Any, make_id: Callable[[], str], timeout_s: float) -> tuple[str, int, int]:
    """Collective in `group`: (id, this process's rank, size of the group), the id made on rank 0.

    Raises InitError on every rank when there is no id, and WaitTimeout after `timeout_s` seconds.
    """
    from torch import distributed

    rank = distributed.get_rank(group)
    if rank < 0:
        raise InitError("shmem_init: this process is not in the process group it gave")
    message, error = "", None
    if rank == 0:
        try:
            message = "id " + make_id()
        except InitError as caught:  # the others wait for this rank's message
            error = caught
            message = f"error {caught}"
    answer = _from_rank_0(group, message, timeout_s)
    if error is not None:
        raise error
    word, _, text = answer.partition(" ")
    if word != "id":
        raise InitError(f"shmem_init: rank 0 of the process group has no id: {text}")
    return text, rank, distributed.get_world_size(group)


def _from_rank_0(group: Any, message: str, timeout_s: float) -> str:
    import torch
    from torch import distributed

    # NCCL and its like move only memory of their devices.
    on_host = any(name in distributed.get_backend(group) for name in ("gloo", "mpi"))
    device = "cpu" if on_host else torch.device("cuda", torch.cuda.current_device())
    mine = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8, device=device)
    encoded = message.encode()[:_MESSAGE_BYTES]
    if encoded:
        mine[: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8, device=device)
    size = distributed.get_world_size(group)
    everybody = [torch.zeros_like(mine) for _ in range(size)]
    # Gathered, not broadcast: the group's own number of its first rank means the same in every
    # version of torch only here.
    work = distributed.all_gather(everybody, mine, group=group, async_op=True)
    deadline = time.monotonic() + timeout_s
    while not work.is_completed():
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"shmem_init: rank {distributed.get_rank(group)} of the process group waited "
                f"{timeout_s:g} s for the other {size - 1}"
            )
        time.sleep(0.001)
    work.wait()  # ended: raises what went wrong, and orders the device's memory
    return bytes(everybody[0].tolist()).rstrip(b"\0").decode()
