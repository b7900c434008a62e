"""Damaged files: bits, bytes and lines of a run's own, and what someone might write by hand."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support import tiny

from fuzz.tally import Tally
from trident.report import records as recording
from trident.run_directory import read_result, read_run, write_json
from trident.sealed import seal
from trident.training import checkpoint, session
from trident.training.doctor import examine
from trident.training.settings import Settings, make_setup, setup_of

del tiny  # registers the environment and the learner of that name

NAMES = ("run.json", "result.json", "records.jsonl", "checkpoints/00000004.json", "checkpoints/00000004.npz",
         "checkpoints/00000003.json", "checkpoints/00000003.npz")  # fmt: skip
ODD: tuple[Any, ...] = (None, 0, -1, 1e300, "", "x", "\x1b[2J", [], {}, [None], 10**30, True, "../../x", ["tiny"] * 3)


def a_run(place: Path) -> Path:
    """Four rounds; checkpoints of the last two; a result."""
    out, real = place / "run", checkpoint.save
    checkpoint.save = lambda folder, tree, round_, identity, kept, records: real(
        folder, tree, round_, identity, 2, records
    )
    try:
        session.train(make_setup("tiny", "tiny", Settings(episodes=8, seeds=2, checkpoint_every=0)), out)
    finally:
        checkpoint.save = real
    result = {"episodes": 1, "deterministic": True, "shielded": False, "seeds": [0, 1], "diverged": {}}
    write_json(out / "result.json", result | {"policies": {"tiny": [{"reward": 1.0}] * 2}})
    return out


def bits(tree: Any) -> list[bytes]:
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x).tobytes()
            for x in leaves]  # fmt: skip


def read_all(out: Path) -> dict[str, Any]:
    found, round_, _ = session.load_state(setup_of(out), out)
    return {"run": read_run(out), "result": read_result(out), "records": recording.read(out / "records.jsonl"),
            "state": (round_, bits(found))}  # fmt: skip


def mutations(dice: random.Random) -> dict[str, Callable[[bytes], bytes]]:
    def at(data: bytes) -> int:
        return dice.randrange(max(len(data), 1))

    def flip(data: bytes) -> bytes:
        i = at(data)
        return data[:i] + bytes([data[i] ^ (1 << dice.randrange(8))]) + data[i + 1 :]

    def digit(data: bytes) -> bytes:
        places = [i for i in range(len(data)) if data[i : i + 1].isdigit()]
        i = dice.choice(places or [0])
        return data[:i] + str(dice.randrange(10)).encode() + data[i + 1 :]

    def odd(data: bytes) -> bytes:
        """One entry of a JSON file, or of a line of it, is another thing: without a new digest."""
        lines = data.split(b"\n") if b"\n{" in data else [data]
        i = dice.randrange(len(lines))
        try:
            content = json.loads(lines[i])
            where, path = content, []
            while isinstance(where, dict | list) and where and (not path or dice.random() < 0.6):
                key = dice.choice(list(where)) if isinstance(where, dict) else dice.randrange(len(where))
                path.append((where, key))
                where = where[key]
            owner, key = path[-1]
            owner[key] = dice.choice(ODD)
            lines[i] = json.dumps(seal(content) if dice.random() < 0.3 else content).encode()
        except (ValueError, IndexError):
            return flip(data)
        return b"\n".join(lines)

    def swap(data: bytes) -> bytes:
        lines = data.split(b"\n")
        i, j = dice.randrange(len(lines)), dice.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
        return b"\n".join(lines)

    return {
        "flip": flip, "digit": digit, "odd": odd, "swap": swap,
        "cut": lambda data: data[: at(data)],
        "double": lambda data: data + data,
        "hole": lambda data: data[: (i := at(data))] + b"\0" * min(64, len(data) - i) + data[i + 64 :],
        "noise": lambda data: data[: (i := at(data))] + dice.randbytes(16) + data[i + 16 :],
        "empty": lambda data: b"",
    }  # fmt: skip


def damaged(tally: Tally, count: int, dice: random.Random) -> None:
    """One file of a run changed. Reading it all must give what was written, an older state that was, or one line."""
    with tempfile.TemporaryDirectory() as place:
        out, ways = a_run(Path(place)), mutations(dice)
        truth = read_all(out)
        older = Path(shutil.copytree(out, Path(place) / "older"))
        for suffix in ("json", "npz"):
            (older / f"checkpoints/00000004.{suffix}").unlink()
        states = {4: truth["state"], 3: read_all(older)["state"]}
        for _ in range(count):
            name, way = dice.choice(NAMES), dice.choice([*ways])
            path = out / name
            data = path.read_bytes()
            other = ways[way](data)
            path.write_bytes(other)
            with tally.attempt((name, way)):
                examine(out)
                found = read_all(out)
                cut = found["records"] == truth["records"][: len(found["records"])]  # as a crash may leave them
                run = {k: v for k, v in found["run"].items() if k in truth["run"]} == truth["run"]
                same = run and found["result"] == truth["result"] and cut
                if (same and states.get(found["state"][0]) == found["state"]) or (
                    way == "odd" and b'"digest"' in other
                ):
                    tally.sound += 1
                else:
                    tally.fail("silent", (name, way))
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)


def strangers(tally: Tally, count: int, dice: random.Random) -> None:
    """Links, pipes and devices in the place of files: nothing outside the folder is changed, nothing is waited for."""
    with tempfile.TemporaryDirectory() as place:
        whole, outside = a_run(Path(place)), Path(place) / "outside"
        outside.mkdir()
        for name in ("00000009.npz", "00000001.npz.partial", "run.json", "records.jsonl", "result.json"):
            (outside / name).write_text("mine")
        before = {path.name: path.read_bytes() for path in outside.iterdir()}
        for i in range(count):
            out = Path(shutil.copytree(whole, Path(place) / f"run-{i}"))
            name = dice.choice([*NAMES, "checkpoints", "figures", "tensorboard", "damaged", "run.json.partial"])
            path = out / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            kind = dice.choice(["outside", "file", "/dev/zero", "pipe"])
            if kind == "pipe":
                os.mkfifo(path)
            else:
                path.symlink_to({"outside": outside, "file": outside / "records.jsonl"}.get(kind, kind))
            with tally.attempt((name, kind)):
                read_all(out)
                session.resume(out)
                tally.sound += 1
            if {p.name: p.read_bytes() if p.is_file() else p for p in outside.iterdir()} != before:
                tally.fail("lost", (name, kind))
            shutil.rmtree(out)
