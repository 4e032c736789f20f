"""A Mixture-of-Experts layer whose tokens travel between the PEs of an MPI job.

    RAILSHMEM_NODES=2 RAILSHMEM_RAILS=2 mpirun -n 4 python examples/moe_layer.py

Every PE takes a piece of a text, embeds its words (moe_gating.py), routes each to 8 of 256 experts,
dispatches it to the PEs that own them, applies its own experts (moe_experts.py) to what arrives and
combines the results. PE 0 compares everything with a float64 computation in one process
(moe_reference.py). The same exchange runs through MPI_Alltoallv, taking turns with ours.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

# The PEs are the parallelism: threads of numpy's matrix products would fight over their cores.
# Numpy looks at this once, when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from mpi4py import MPI

import railshmem
from moe_check import Share, check, put_together
from moe_experts import Experts
from moe_gating import GROUPS_PER_TOKEN, N_GROUPS, TOPK, Gate, embed, words_of
from moe_print import skew_lines, times_table, traffic_table, verdict_lines
from moe_reference import Delivered
from moe_traffic import flows
from railshmem.bench.alltoallv import AlltoallvExchange
from railshmem.bench.measure import Figure, Phases, take_turns_together
from railshmem.bench.report import plain_text
from railshmem.bench.token_types import SCALE_BLOCK, TOKEN_TYPES, quantise, restore
from railshmem.ep import ExpertParallel

README = Path(__file__).resolve().parent.parent / "README.md"


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, default=README, help="the file to read")
    parser.add_argument("--tokens", type=int, default=4096, help="use at most so many words")
    parser.add_argument("--hidden", type=int, default=512, help="DeepSeek-V3 has 7168")
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--dtype", choices=sorted(TOKEN_TYPES), default="bf16")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def problem_with(options: argparse.Namespace, n_pes: int) -> str | None:
    """What is wrong with the command line, if anything."""
    if not options.text.is_file():
        return f"--text {options.text} is not a file"
    if options.experts % n_pes or options.experts % N_GROUPS:
        return (
            f"--experts {options.experts} cannot be split evenly over {n_pes} PEs and "
            f"{N_GROUPS} groups"
        )
    if options.tokens < 0 or options.rounds < 1 or options.hidden < 1:
        return "--tokens must be at least 0, --rounds and --hidden at least 1"
    if TOKEN_TYPES[options.dtype].scaled and options.hidden % SCALE_BLOCK:
        return f"--dtype {options.dtype} needs --hidden to be a multiple of {SCALE_BLOCK}"
    return None


class Layer:
    """One PE's share of the layer: its tokens, its experts, and two ways to exchange rows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.comm = MPI.COMM_WORLD
        self.runtime: Any = railshmem.runtime()
        self.me, self.n_pes = self.runtime.my_pe, self.runtime.n_pes
        self.kind = TOKEN_TYPES[options.dtype]

        words = words_of(options.text.read_text(encoding="utf-8"))[: options.tokens]
        self.bounds = [len(words) * pe // self.n_pes for pe in range(self.n_pes + 1)]
        first, last = self.bounds[self.me], self.bounds[self.me + 1]
        # One more word on the left: it is part of its neighbour's embedding.
        embedded = embed(words[max(first - 1, 0) : last], options.hidden)[min(first, 1) :]
        gate = Gate.random(options.experts, options.hidden, options.seed)
        self.routing = gate.route(embedded)
        self.tokens, self.scales = quantise(embedded, self.kind)

        local = options.experts // self.n_pes
        self.experts = Experts(self.me * local, local, options.hidden, options.seed)
        shape = {
            "hidden": options.hidden,
            "experts": options.experts,
            "topk": TOPK,
            "max_tokens": max(1, *np.diff(self.bounds).tolist()),
            "dtype": self.kind.dispatch,
            "combine_dtype": self.kind.combine,
        }
        self.ours = ExpertParallel(**shape, runtime=self.runtime)
        n_scales = options.hidden // SCALE_BLOCK if self.kind.scaled else 0
        self.rival = AlltoallvExchange(self.comm, **shape, n_scales=n_scales)
        # Filled by the first round, compared with in later ones.
        self.delivered: Delivered | None = None
        self.combined = self.results = np.zeros((0, options.hidden), self.kind.combine)
        self.repeatable = self.rival_agrees = True

    def our_round(self) -> dict[str, float]:
        """Dispatch, experts, combine. Returns the seconds of each; they start together.

        Where PEs share cores, the experts of one that is done would run in another's dispatch.
        """
        start = time.perf_counter()
        got = self.ours.dispatch(self.tokens, *self.routing, self.scales)
        dispatched = time.perf_counter()
        self.comm.Barrier()
        begun = time.perf_counter()
        results = got.handle.expert_buffer()
        values = restore(got.tokens, got.scales)
        results[...] = self.experts.weighted_sum(values, got.indices, got.weights)[0]
        computed = time.perf_counter()
        self.comm.Barrier()
        together = time.perf_counter()
        combined = self.ours.combine(results, got.handle)
        end = time.perf_counter()
        self._remember(got, combined, results)
        return {
            "dispatch": dispatched - start,
            "experts": computed - begun,
            "combine": end - together,
        }

    def rival_round(self) -> dict[str, float]:
        """The same rows through MPI; the experts' results are those of our round."""
        start = time.perf_counter()
        got = self.rival.dispatch(self.tokens, *self.routing, self.scales)
        dispatched = time.perf_counter()
        self.comm.Barrier()
        together = time.perf_counter()
        self.rival.combine(self.results)
        end = time.perf_counter()
        assert self.delivered is not None  # our round came first
        self.rival_agrees &= self.delivered.differs_from(Delivered.copy_of(got)) is None
        return {"MPI dispatch": dispatched - start, "MPI combine": end - together}

    def _remember(self, got: Any, combined: np.ndarray, results: np.ndarray) -> None:
        if self.delivered is None:
            self.delivered = Delivered.copy_of(got)
            self.combined, self.results = np.array(combined), np.array(results)
        self.repeatable &= combined.tobytes() == self.combined.tobytes()

    def share(self) -> Share:
        """Collective: runs one more round to see what the NICs carry."""
        before = {(row["pe"], row["rail"]): row for row in self.runtime.proxy_traffic()}
        self.our_round()
        posted = [dict(row) for row in self.runtime.proxy_traffic()]
        for row in posted:
            for count in ("bytes", "commands"):
                row[count] -= before.get((row["pe"], row["rail"]), {}).get(count, 0)
        assert self.delivered is not None
        return Share(
            Delivered(self.tokens, self.scales, *self.routing),
            self.delivered,
            self.combined,
            self.repeatable,
            self.rival_agrees,
            posted,
        )


def headline(layer: Layer, n_tokens: int) -> str:
    """What runs where."""
    options, info = layer.options, layer.runtime.info()
    rails = {nic["rail"] for pe in info["pes"] for nic in pe["nics"]}
    return (
        f"A Mixture-of-Experts layer on {layer.n_pes} PEs, {info['n_nodes']} nodes, "
        f"{len(rails)} rails\n"
        f"{n_tokens:,} words of {options.text.name}, {options.dtype}, hidden {options.hidden}; "
        f"{options.experts} experts, top {TOPK} of {GROUPS_PER_TOKEN} of {N_GROUPS} groups"
    )


def check_and_print(layer: Layer, shares: list[Share], times: dict[str, Figure]) -> bool:
    """On PE 0: compares every PE's share with the reference and prints what happened."""
    options, n_pes = layer.options, layer.n_pes
    whole = put_together(shares)
    everything = Experts(0, options.experts, options.hidden, options.seed)
    verdict = check(shares, whole, everything, options.experts)
    owner = whole.routing.indices // (options.experts // n_pes)
    goes = (owner[:, :, None] == np.arange(n_pes)).any(axis=1)
    row_bytes = options.hidden * (layer.kind.dispatch.itemsize + layer.kind.combine.itemsize)
    posted = [share.posted for share in shares]
    text = plain_text(
        headline(layer, len(whole.tokens)),
        "\nOne round: who sends how much, and how (bytes of dispatch and combine)",
        traffic_table(flows(layer.runtime.info(), goes, whole.source, row_bytes, posted)),
        "",
        skew_lines(np.bincount(whole.routing.indices.ravel(), minlength=options.experts), n_pes),
        f"\nTimes of the slowest PE, median of {options.rounds} rounds, in milliseconds",
        times_table(times),
        "",
        verdict_lines(verdict),
    )
    sys.stdout.write(text)
    sys.stdout.flush()
    return verdict.good


def main() -> int:
    """Runs the layer; 0 when every result is right."""
    options = parse_options()
    railshmem.shmem_init()
    if problem := problem_with(options, railshmem.shmem_n_pes()):
        sys.exit(problem if railshmem.shmem_my_pe() == 0 else 1)
    layer = Layer(options)
    turns: dict[str, Phases] = {"ours": layer.our_round, "rival": layer.rival_round}
    times = take_turns_together(layer.comm, turns, options.rounds)
    shares = layer.comm.gather(layer.share())
    good = check_and_print(layer, shares, times) if shares is not None else True
    good = layer.comm.bcast(good)
    railshmem.shmem_finalize()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
