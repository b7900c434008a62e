"""An audit log played again: the same bundle, messages and clock; every action must come out the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trident.errors import TridentError
from trident.runtime.audit import read, verify
from trident.runtime.bundle import Bundle
from trident.runtime.guard import Guard
from trident.runtime.message import decode, unpack


class Replayed(NamedTuple):
    decisions: int
    different: list[str]
    """Where the log says otherwise."""


def replay(log: str | Path, bundle: Bundle) -> Replayed:
    """Bit for bit. The log is verified first; orders and latencies are taken from it."""
    verify(log)
    guard, count, different = None, 0, []
    for where, entry in read(log):
        if entry is None:
            continue
        event = entry.get("event", {})
        if "start" in event:
            if event["start"] != bundle.manifest["sha256"]:
                raise TridentError(f"{where}: the log is of another bundle ({event['start'][:16]}...)")
            guard = Guard(bundle, seed=event["seed"], **_settings(event["monitor"], bundle))
        if "branch" not in entry:
            continue
        if guard is None:
            raise TridentError(f"{where}: the log has no start; replay it from its first file")
        if "lost_before" in entry:
            raise TridentError(f"{where}: {entry['lost_before']} entries are missing before it; a replay ends there")
        count += 1
        if not _same(guard, entry):
            different.append(where)
    return Replayed(count, different)


def _same(guard: Guard, entry: dict[str, Any]) -> bool:
    guard.override.orders = {int(agent): order for agent, order in entry["orders"].items()}
    message = unpack(entry["in"])
    rest = {name: value for name, value in message._asdict().items() if name not in ("observations", "stamps")}
    action, reasons = guard.decide(
        message.observations, message.stamps, **rest, now=entry["now"], elapsed=entry["took"]
    )  # fmt: skip
    params = decode(entry["params"])
    return (
        action.mode.tolist() == entry["mode"]
        and np.array_equal(action.params.view(np.uint32), params.view(np.uint32))
        and [reason.branch for reason in reasons] == entry["branch"]
    )


def _settings(recorded: dict[str, Any], bundle: Bundle) -> dict[str, Any]:
    return {name: value for name, value in recorded.items() if name in bundle.manifest["monitor"]}
