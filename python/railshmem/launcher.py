"""What the launcher of the job put into the environment."""

from __future__ import annotations

import os

# MPICH and its relatives, Open MPI, Slurm.
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def launched_rank() -> int:
    """This process's rank before MPI is initialised; 0 without a launcher."""
    for name in RANK_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0
