"""`railshmem model`: exact counts on small shapes, sense on large ones, and the command line."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from math import comb
from pathlib import Path

import click.testing
import numpy as np
import pytest

from railshmem import _core
from railshmem.cli import cli
from railshmem.errors import ArgumentError
from railshmem.model.cluster import Cluster, Layer
from railshmem.model.fit import compare, fitted, median_error, read_measurements
from railshmem.model.network import FITTED, Network, load_network, preset_names
from railshmem.model.report import hot_text, nic_bytes
from railshmem.model.routing import Routing
from railshmem.model.times import Round, queue_pairs, startup
from railshmem.model.traffic import HEADER_BYTES, SIGNAL_BYTES
from test_cli import TWO_NODES, json_lines, needs_mpirun

LAYER = Layer(tokens=40, hidden=64, experts=16, topk=3, dtype="bf16")
SHAPES = [(2, 2, 2), (4, 1, 1), (3, 4, 2), (2, 4, 3), (4, 2, 4)]


def network() -> Network:
    return load_network("roce-400g")


# ---- rails and queue pairs are the job's ----


def test_rails_are_the_same_from_both_sides() -> None:
    topology = _core.model.Topology(4, 4, 3)
    pes = np.arange(topology.n_pes)
    a, b = (grid.ravel() for grid in np.meshgrid(pes, pes))
    for lane in range(3):
        assert (topology.rails(a, b, lane) == topology.rails(b, a, lane)).all()
    # The next lane is on the next rail.
    assert (topology.rails(a, b, 1) == (topology.rails(a, b, 0) + 1) % 3).all()


def test_forwarders_have_the_local_index_of_the_source_and_its_home_rail() -> None:
    cluster = Cluster(3, 4, 2)
    home = cluster.topology.home_rails()
    for pe in range(cluster.n_pes):
        for node in range(cluster.nodes):
            forwarder = cluster.forwarder[pe, node]
            if node == cluster.node[pe]:
                assert (forwarder, cluster.rail[pe, node]) == (-1, -1)
            else:
                assert cluster.node[forwarder] == node
                assert cluster.local_index[forwarder] == cluster.local_index[pe]
                assert cluster.rail[pe, node] == home[pe]


def test_what_no_topology_can_be() -> None:
    with pytest.raises(ArgumentError, match="0 nodes with 2 PEs and 1 rails"):
        _core.model.Topology(0, 2, 1)
    topology = _core.model.Topology(2, 2, 1)
    with pytest.raises(ArgumentError, match="PE 4: expected from 0 to 3"):
        topology.rails([0], [4])
    with pytest.raises(ArgumentError, match="node 2: expected from 0 to 1"):
        topology.forwarders([0], [2])
    with pytest.raises(ArgumentError, match="not of 1 and 2 elements"):
        topology.rails([0], [1, 2])


def test_queue_pairs_and_their_memory_grow_with_peers_and_lanes() -> None:
    # Towards each peer two for atomics; on one rail those of remote peers carry the lane, too.
    assert queue_pairs(Cluster(2, 2, 1))[0] == 2 * 4
    assert queue_pairs(Cluster(1, 8, 1)) == (0, 0)
    counts = [queue_pairs(Cluster(nodes, 2, 2)) for nodes in (2, 4, 8)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    assert queue_pairs(Cluster(4, 2, 4, lanes=4)) > queue_pairs(Cluster(4, 2, 4))
    assert queue_pairs(Cluster(4, 2, 4), 512)[1] > queue_pairs(Cluster(4, 2, 4), 256)[1]


@needs_mpirun
def test_queue_pairs_are_those_of_a_job() -> None:
    chosen = {"RAILSHMEM_NODES": "4", "RAILSHMEM_RAILS": "2", "RAILSHMEM_LANES": "2"}
    lines = json_lines(4, "init", "--heap", str(1 << 24), "--rounds", "1", settings=chosen)
    assert [(line["n_pes"], line["n_nodes"]) for line in lines] == [(1, 1), (2, 2), (4, 4)]
    assert (lines[0]["queue_pairs"], lines[0]["connection_bytes"]) == (0, 0)
    for line in lines[1:]:
        cluster = Cluster(line["n_nodes"], 1, line["rails"], line["lanes"], line["n_hosts"])
        pairs, queues = queue_pairs(cluster)
        assert line["queue_pairs"] == pairs
        assert line["connection_bytes"] == queues + startup(cluster, network()).heap_bytes


@needs_mpirun
def test_what_ep_measures_can_be_checked(tmp_path: Path) -> None:
    shape = ("--tokens", "16", "--hidden", "256", "--experts", "16", "--topk", "4")
    lines = json_lines(4, "ep", *shape, "--rounds", "1", settings=TWO_NODES)
    found = read_measurements([written(lines, tmp_path / "ep.jsonl")])
    assert [each.measured_us for each in found] == [line["median_us"] for line in lines]
    assert all("2 nodes × 2 PEs × 2 rails" in each.text for each in found)


# ---- routing ----


@pytest.mark.parametrize("exponent", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("experts", "topk"), [(16, 3), (8, 8), (256, 8), (1, 1)])
def test_a_token_has_different_experts(exponent: float, experts: int, topk: int) -> None:
    routing = Routing(exponent, seed=5)
    chances = routing.chances(experts)
    assert chances.sum() == pytest.approx(1)
    drawn = routing.draw(chances, topk, 200, pe=3)
    assert drawn.shape == (200, topk)
    assert ((drawn >= 0) & (drawn < experts)).all()
    assert all(len(set(row)) == topk for row in drawn.tolist())
    assert (drawn == routing.draw(chances, topk, 200, pe=3)).all()  # seeded
    if experts > topk:
        assert (drawn != routing.draw(chances, topk, 200, pe=4)).any()


def test_skewed_experts_are_drawn_as_often_as_their_chances_say() -> None:
    routing = Routing(1.0)
    chances = routing.chances(8)
    drawn = routing.draw(chances, 1, 20000, pe=0)
    assert np.bincount(drawn.ravel(), minlength=8) / 20000 == pytest.approx(chances, abs=0.015)


# ---- bytes ----


def by_hand(cluster: Cluster, layer: Layer, routing: Routing) -> dict[str, Counter[object]]:
    """Every token on its way, one by one."""
    owners = _core.model.expert_owners(layer.experts, cluster.n_pes)
    chances = routing.chances(layer.experts)
    out: dict[str, Counter[object]] = {
        name: Counter() for name in ("dispatch", "combine", "placed", "arriving")
    }
    for source in range(cluster.n_pes):
        drawn = routing.draw(chances, layer.topk, layer.tokens, source)
        own = cluster.node[source]
        for node in range(cluster.nodes):
            rows, puts, latest = 0, 0, -2
            forwarder = source if node == own else int(cluster.forwarder[source, node])
            for token in range(layer.tokens):
                there = {pe for pe in owners[drawn[token]].tolist() if cluster.node[pe] == node}
                for pe in there:
                    out["placed"][forwarder] += 1
                    out["arriving"][pe] += 1
                if not there:
                    continue
                rows += 1
                puts += token != latest + 1 or token % layer.chunk_rows == 0
                latest = token
            if node == own:
                continue
            rail = int(cluster.topology.rails([source], [forwarder])[0])
            scales = layer.hidden // 128 if layer.dtype == "fp8" else 0
            row = layer.token_bytes + 4 * (2 * layer.topk + scales)
            there_bytes = HEADER_BYTES + SIGNAL_BYTES * (1 + puts) + rows * row
            chunks = -(-rows // layer.chunk_rows)
            partial = layer.hidden * 4 if cluster.pes > 1 else layer.result_bytes
            back_bytes = rows * partial + SIGNAL_BYTES * chunks
            for name, nbytes, ends in (
                ("dispatch", there_bytes, (own, node)),
                ("combine", back_bytes, (node, own)),
            ):
                out[name][("sent", int(ends[0]), rail)] += nbytes
                out[name][("received", int(ends[1]), rail)] += nbytes
                out[name][("posted", source if name == "dispatch" else forwarder)] += (
                    1 + puts if name == "dispatch" else chunks
                )
    return out


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("exponent", [0.0, 1.2])
@pytest.mark.parametrize("layer", [LAYER, replace(LAYER, hidden=32768, dtype="fp8", experts=24)])
def test_bytes_are_exact(shape: tuple[int, int, int], exponent: float, layer: Layer) -> None:
    cluster, routing = Cluster(*shape), Routing(exponent, seed=7)
    round_ = Round.of(cluster, layer, routing)
    expected = by_hand(cluster, layer, routing)
    for name, load in (("dispatch", round_.dispatch), ("combine", round_.combine)):
        for node in range(cluster.nodes):
            for rail in range(cluster.rails):
                assert load.sent[node, rail] == expected[name][("sent", node, rail)]
                assert load.received[node, rail] == expected[name][("received", node, rail)]
        posted = [expected[name][("posted", pe)] for pe in range(cluster.n_pes)]
        assert load.posted.tolist() == posted
        assert load.messages.sum() == load.posted.sum()
    for pe in range(cluster.n_pes):
        assert round_.rows.placed[pe] == expected["placed"][pe]
        assert round_.rows.arriving[pe] == expected["arriving"][pe]


def test_uniform_routing_is_what_probability_says() -> None:
    cluster, layer = Cluster(4, 4, 4), replace(LAYER, tokens=2000, experts=64, topk=4)
    rows = Round.of(cluster, layer, Routing()).rows
    chance = 1 - comb(48, 4) / comb(64, 4)
    remote = rows.crossing[rows.crossing > 0]
    assert remote.size == 16 * 3
    assert remote.mean() / 2000 == pytest.approx(chance, rel=0.02)


def test_a_sample_stands_for_all_tokens() -> None:
    cluster, layer = Cluster(4, 2, 2), replace(LAYER, tokens=4000)
    whole = Round.of(cluster, layer, Routing(1.0))
    sample = Round.of(cluster, layer, Routing(1.0), most_draws=8 * 3 * 1000)
    assert (whole.rows.sampled, sample.rows.sampled) == (4000, 1000)
    assert nic_bytes(sample) == pytest.approx(nic_bytes(whole), rel=0.05)


def test_no_tokens_and_one_node() -> None:
    empty = Round.of(Cluster(2, 2, 2), replace(LAYER, tokens=0), Routing())
    assert empty.combine.sent.sum() == 0
    assert empty.dispatch.sent.sum() == 4 * (HEADER_BYTES + SIGNAL_BYTES)  # the headers
    alone = Round.of(Cluster(1, 4, 1), LAYER, Routing())
    assert alone.dispatch.sent.sum() == alone.combine.sent.sum() == 0
    assert alone.rows.placed.sum() > 0
    assert hot_text(alone) == "no NIC carries anything"


# ---- which rail is hot ----


def test_as_many_pes_as_rails_are_even() -> None:
    layer = replace(LAYER, tokens=4000, experts=64)
    assert hot_text(Round.of(Cluster(4, 4, 4), layer, Routing())).startswith("no rail is hot")


def test_pes_that_do_not_divide_by_the_rails_make_one_hot() -> None:
    layer = replace(LAYER, tokens=4000, experts=60)
    text = hot_text(Round.of(Cluster(5, 3, 2), layer, Routing()))
    assert text.startswith("rail 0 is hot on node")
    assert "3 PEs of a node share 2 rails and those of local index 0, 2 are on this one" in text


def test_rails_without_pes_are_named() -> None:
    layer = replace(LAYER, tokens=4000, experts=64)
    text = hot_text(Round.of(Cluster(4, 2, 4), layer, Routing()))
    assert "while rail 2-3 is idle" in text


def test_the_node_of_wanted_experts_is_hot() -> None:
    layer = replace(LAYER, tokens=2000, experts=64)
    cluster, routing = Cluster(8, 2, 2), Routing(1.5, seed=1)
    owners = _core.model.expert_owners(64, cluster.n_pes)
    wanted = np.bincount(cluster.node[owners], routing.chances(64), cluster.nodes)
    text = hot_text(Round.of(cluster, layer, routing))
    assert f"on node {wanted.argmax()}:" in text
    assert "% of the rows that cross nodes, where 12.5 % is even" in text


# ---- time ----


def total_us(cluster: Cluster, layer: Layer, of: Network, routing: Routing | None = None) -> float:
    times = Round.of(cluster, layer, routing or Routing()).times(of)
    return sum(phase.us for phase in times.values())


def test_time_is_monotone() -> None:
    cluster, layer = Cluster(4, 4, 4), replace(LAYER, hidden=4096)
    by_tokens = [total_us(cluster, replace(layer, tokens=n), network()) for n in (0, 8, 64, 512)]
    assert by_tokens == sorted(by_tokens)
    by_hidden = [total_us(cluster, replace(layer, hidden=n), network()) for n in (64, 512, 8192)]
    assert by_hidden == sorted(by_hidden)
    more = replace(layer, tokens=512)
    by_rails = [total_us(Cluster(4, 4, rails), more, network()) for rails in (4, 2, 1)]
    assert by_rails == sorted(by_rails)
    slower = [total_us(cluster, more, replace(network(), nic_gbs=gbs)) for gbs in (50, 25, 5)]
    assert slower == sorted(slower)


@pytest.mark.parametrize("name", FITTED)
def test_time_moves_with_every_number_of_the_network(name: str) -> None:
    """None is dead: a larger one never makes everything equal."""
    cluster, layer = Cluster(4, 4, 2), replace(LAYER, hidden=4096, tokens=256)
    base = replace(network(), overlap=0.5)
    other = replace(base, **{name: 2 * getattr(base, name)})
    before = total_us(cluster, layer, base) + startup(cluster, base).us
    after = total_us(cluster, layer, other) + startup(cluster, other).us
    assert (after < before) if name.endswith("gbs") else (after > before)


def test_pes_that_share_cores_are_slower() -> None:
    layer = replace(LAYER, hidden=4096, tokens=256)
    crowded = replace(network(), host_cores=2, overlap=0)
    apart = total_us(Cluster(4, 2, 2), layer, crowded)
    together = total_us(Cluster(4, 2, 2, hosts=1), layer, crowded)
    assert together > apart


def test_init_grows_with_pes_and_4096_are_bounded_work() -> None:
    starts = [startup(Cluster(nodes, 8, 8), network()) for nodes in (1, 2, 16, 512)]
    assert [each.us for each in starts] == sorted(each.us for each in starts)
    assert starts[0].queue_pairs == 0
    assert starts[-1].queue_pairs >= 2 * 4096
    assert starts[-1].queue_bytes > starts[-2].queue_bytes


def test_4096_pes() -> None:
    cluster = Cluster(512, 8, 8)
    layer = Layer(tokens=4096, hidden=7168, experts=4096, topk=8, dtype="bf16")
    round_ = Round.of(cluster, layer, Routing(1.0), most_draws=4096 * 8 * 4)
    assert round_.rows.sampled == 4  # the work is bounded by draws, not by tokens
    assert round_.dispatch.sent.sum() == pytest.approx(round_.dispatch.received.sum())
    assert round_.combine.sent.shape == (512, 8)
    assert "hot on node" in hot_text(round_)


# ---- networks ----


def test_presets_are_whole() -> None:
    assert {"roce-400g", "infiniband-400g", "efa-100g", "tcp-25g"} <= set(preset_names())
    for name in preset_names():
        found = load_network(name)
        assert found.name == name
        assert found.source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nic_gbs": 0}, "nic_gbs 0: expected more than 0"),
        ({"nic_gbs": "fast"}, "nic_gbs 'fast' is no number"),
        ({"overlap": 2}, "overlap 2: expected 0 to 1"),
        ({"nic_gbps": 1}, "unknown nic_gbps"),
        ({"nic_gbs": None}, "missing nic_gbs"),
    ],
)
def test_bad_networks_say_what_is_wrong(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    values = json.loads(network().as_json()) | change
    file = tmp_path / "net.json"
    file.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    with pytest.raises(ArgumentError, match=message):
        load_network(str(file))


# ---- fit and check ----


def lines_of(of: Network, shapes: list[tuple[int, int, int]]) -> list[dict[str, object]]:
    """Results as `railshmem bench` writes them, of a machine that is just like the model."""
    lines: list[dict[str, object]] = []
    for nodes, pes, rails in shapes:
        cluster = Cluster(nodes, pes, rails)
        shape = {
            "n_pes": cluster.n_pes,
            "n_nodes": nodes,
            "n_hosts": nodes,
            "rails": rails,
            "lanes": 1,
        }
        for tokens, hidden in ((64, 256), (1024, 256), (1024, 4096)):
            layer = Layer(tokens, hidden, 16, 4, "bf16")
            times = Round.of(cluster, layer, Routing()).times(of)
            lines += [
                {"bench": f"ep_{name}", "median_us": phase.us, **vars(layer), **shape}
                for name, phase in times.items()
            ]
        start = startup(cluster, of).us
        lines.append({"bench": f"init_{cluster.n_pes}", "median_us": start, **shape})
    sizes = (8, 65536, 1 << 22)
    fixed = of.pe_message_us + of.nic_message_us + of.nic_latency_us
    lines += [
        {
            "bench": "put_quiet",
            "transport": "PROXY",
            "bytes": size,
            "median_us": fixed + size / of.nic_gbs / 1e3,
        }
        for size in sizes
    ]
    lines.append({"bench": "barrier", "median_us": 3.0})  # which the model leaves aside
    return lines


def written(lines: list[dict[str, object]], file: Path) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_a_fit_on_one_network_predicts_other_shapes(tmp_path: Path) -> None:
    truth = replace(
        load_network("tcp-25g"), nic_gbs=1.3, nic_latency_us=25.0, local_gbs=9.0, init_us=900.0
    )
    seen = read_measurements([written(lines_of(truth, SHAPES[:3]), tmp_path / "a.jsonl")])
    unseen = read_measurements([written(lines_of(truth, SHAPES[3:]), tmp_path / "b.jsonl")])
    start = load_network("tcp-25g")
    found = fitted(start, seen, "mine", "a test")
    assert median_error(compare(start, unseen)) > 0.1
    assert median_error(compare(found, unseen)) < 0.05
    assert found.nic_gbs == pytest.approx(1.3, rel=0.1)
    assert (found.name, found.overlap) == ("mine", start.overlap)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "line 1 is not a result"),
        ('{"bench": "ep_dispatch", "median_us": 3}', "has no number 'n_pes': measure it again"),
        ('{"bench": "barrier", "median_us": 3}', "nothing to compare"),
        ("", "nothing to compare"),
        (
            '{"bench": "init_3", "median_us": 1, "n_pes": 3, "n_nodes": 2, "n_hosts": 1,'
            ' "rails": 1, "lanes": 1}',
            "3 PEs on 2 nodes: the model needs equal nodes",
        ),
        (
            '{"bench": "put_quiet", "transport": "PROXY", "bytes": 8, "median_us": 0}',
            "median_us 0.0: expected more than 0",
        ),
    ],
)
def test_bad_results_say_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=message):
        read_measurements([file])


# ---- the command line ----


def run_cli(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["model", *arguments])


SMALL = ("--nodes", "3", "--pes", "3", "--rails", "2", "--experts", "27", "--hidden", "256")


def test_predict_prints_times_rails_and_init() -> None:
    done = run_cli("predict", *SMALL, "--tokens", "512", "--tokens", "64")
    assert done.exit_code == 0, done.output
    for text in ("9 PEs", "predicted, not measured", "dispatch", "combine", "busiest NIC"):
        assert text in done.output
    assert "rail 0 is hot on node" in done.output
    assert "queue pairs" in done.output.splitlines()[-1]


def test_predict_into_files(tmp_path: Path) -> None:
    picture, lines = tmp_path / "model.png", tmp_path / "model.jsonl"
    arguments = (*SMALL, "--tokens", "64", "--tokens", "256", "--routing", "zipf")
    done = run_cli("predict", *arguments, "--plot", str(picture), "--json", str(lines))
    assert done.exit_code == 0, done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [line["model"] for line in found] == ["ep_dispatch", "ep_combine"] * 2 + ["init"]
    assert all(line["us"] > 0 for line in found)
    assert len(found[0]["rail_bytes"]) == 2
    assert found[-1]["queue_pairs"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nodes", "600", "--pes", "8", "--rails", "8"), "4800 PEs: expected at most 4096"),
        ((*SMALL, "--topk", "28"), "topk 28: expected from 1 to 27"),
        ((*SMALL, "--hidden", "24", "--dtype", "fp8"), "hidden 24: expected a multiple of 128"),
        ((*SMALL, "--hidden", "20"), "a row of 40 bytes is no multiple of 16"),
        ((*SMALL, "--network", "carrier-pigeon"), "carrier-pigeon: neither a file nor one of"),
        (("--nodes", "0", "--pes", "1", "--rails", "1"), "0 is not in the range"),
    ],
)
def test_predict_refuses(arguments: tuple[str, ...], message: str) -> None:
    done = run_cli("predict", *arguments)
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())
    assert "Traceback" not in done.output


def test_fit_then_check(tmp_path: Path) -> None:
    truth = replace(load_network("tcp-25g"), nic_gbs=1.0)
    seen = str(written(lines_of(truth, SHAPES[:2]), tmp_path / "seen.jsonl"))
    unseen = str(written(lines_of(truth, SHAPES[2:]), tmp_path / "unseen.jsonl"))
    net = str(tmp_path / "mine.json")
    done = run_cli("fit", seen, "--network", "tcp-25g", "-o", net)
    assert done.exit_code == 0, done.output
    done = run_cli("check", unseen, "--network", net, "--tolerance", "0.1")
    assert done.exit_code == 0, done.output
    assert "predicted us" in done.output
    done = run_cli("check", unseen, "--network", "roce-400g", "--tolerance", "0.1")
    assert done.exit_code == 1
    assert "the median error is" in done.output
    done = run_cli("networks", net, "tcp-25g")
    assert done.exit_code == 0
    assert "fitted to seen.jsonl, from tcp-25g" in done.output
