"""A network as numbers: presets, files, and what each number means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from railshmem.errors import ArgumentError

PRESETS = Path(__file__).parent / "networks"


def _number(meaning: str, fitted: bool = True) -> Any:
    return field(metadata={"meaning": meaning, "fitted": fitted})


@dataclass(frozen=True)
class Network:
    """Times are µs, speeds GB/s (10^9 bytes) in each direction."""

    name: str
    source: str  # where the numbers come from
    nic_gbs: float = _number("GB/s of a NIC in each direction, as payload")
    nic_latency_us: float = _number("µs from a put to where its signal is seen")
    nic_message_us: float = _number("µs that a NIC takes for a put, beside its bytes")
    pe_message_us: float = _number("µs that a PE takes to post a put with its signal")
    pe_round_us: float = _number("µs of a dispatch or combine that moves nothing")
    local_gbs: float = _number("GB/s at which a PE moves rows inside its node")
    local_word_us: float = _number("µs of a word for another PE of the node")
    host_gbs: float = _number("GB/s of all PEs of a host together inside nodes; 0: no limit", False)
    host_cores: float = _number("cores that PEs and progress threads share; 0: enough", False)
    overlap: float = _number("0: sending, posting and moving take turns; 1: they overlap", False)
    init_us: float = _number("µs of init of one PE alone")
    init_exchange_us: float = _number("µs of an exchange, for each doubling of the PEs")
    init_card_us: float = _number("µs of init for each PE of the job: its card, its checks")
    init_map_us: float = _number("µs to map a heap of the same node")
    init_register_us: float = _number("µs to register the heap on a NIC")
    init_connect_us: float = _number("µs to make and connect a queue pair")

    def __post_init__(self) -> None:
        for name in NUMBERS:
            value = getattr(self, name)
            least, what = (0.0, "at least 0") if name in MAY_BE_ZERO else (1e-12, "more than 0")
            if not isfinite(value) or value < least:
                raise ArgumentError(f"network {self.name}: {name} {value}: expected {what}")
        if self.overlap > 1:
            raise ArgumentError(f"network {self.name}: overlap {self.overlap}: expected 0 to 1")

    def as_json(self) -> str:
        """What load_network reads."""
        values = {k: float(f"{v:.6g}") if k in NUMBERS else v for k, v in asdict(self).items()}
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


NUMBERS = {each.name: each.metadata["meaning"] for each in fields(Network) if each.metadata}
FITTED = [each.name for each in fields(Network) if each.metadata.get("fitted")]
MAY_BE_ZERO = {"host_gbs", "host_cores", "overlap"}


def preset_names() -> list[str]:
    """Networks that come with the package."""
    return sorted(file.stem for file in PRESETS.glob("*.json"))


def load_network(name: str) -> Network:
    """A preset by its name, or what a file holds."""
    preset = PRESETS / f"{name}.json"
    file = preset if name in preset_names() else Path(name)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(preset_names())
        raise ArgumentError(f"network {name}: neither a file nor one of {known}") from None
    except (OSError, ValueError) as error:
        raise ArgumentError(f"network {name}: {error}") from None
    return _network_of(name, found)


def _network_of(name: str, found: Any) -> Network:
    if not isinstance(found, Mapping):
        raise ArgumentError(f"network {name}: expected a JSON object")
    texts = {"name": name, "source": ""}
    unknown = sorted(set(found) - set(NUMBERS) - set(texts))
    missing = sorted(set(NUMBERS) - set(found))
    if unknown or missing:
        problems = [f"unknown {', '.join(unknown)}"] if unknown else []
        problems += [f"missing {', '.join(missing)}"] if missing else []
        raise ArgumentError(f"network {name}: {'; '.join(problems)}")
    for key in NUMBERS:
        if isinstance(found[key], bool) or not isinstance(found[key], (int, float)):
            raise ArgumentError(f"network {name}: {key} {found[key]!r} is no number")
    return Network(**{**texts, **found})
