"""Damaged files: bits, bytes and lines of a run's own, and what someone might write by hand."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support import tiny

from fuzz.tally import Tally
from trident.cli import main
from trident.report import records as recording
from trident.run_directory import read_result, read_run, write_json
from trident.sealed import seal
from trident.training import checkpoint, plugins, session
from trident.training.doctor import examine
from trident.training.settings import Settings, make_setup, setup_of

NAMES = ("run.json", "result.json", "records.jsonl", "checkpoints/00000004.json", "checkpoints/00000004.npz",
         "checkpoints/00000003.json", "checkpoints/00000003.npz")  # fmt: skip
MEASURED = ("reward", "cost/use", "cost/noise", "metric/moved", "metric/weight")
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
    write_json(out / "result.json", result | {"policies": {"tiny": [dict.fromkeys(MEASURED, 1.0)] * 2}})
    return out


def bits(tree: Any) -> list[bytes]:
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x).tobytes()
            for x in leaves]  # fmt: skip


def read_all(out: Path) -> dict[str, Any]:
    found, round_, _ = session.load_state(setup_of(out), out)
    return {"run": read_run(out), "result": read_result(out), "records": recording.read(out / "records.jsonl"),
            "state": (round_, bits(found))}  # fmt: skip


def mutations(dice: random.Random, kept: dict[Path, bytes]) -> dict[str, Callable[[bytes], bytes]]:
    def at(data: bytes) -> int:
        return dice.randrange(max(len(data), 1))

    def flip(data: bytes) -> bytes:
        i = at(data)
        return data[:i] + bytes([data[i] ^ (1 << dice.randrange(8))]) + data[i + 1 :]

    def digit(data: bytes) -> bytes:
        places = [i for i in range(len(data)) if data[i : i + 1].isdigit()]
        i = dice.choice(places or [0])
        return data[:i] + str(dice.randrange(10)).encode() + data[i + 1 :]

    def odd(data: bytes, whole: Callable[[Any], Any] = lambda content: content) -> bytes:
        """One entry of a JSON file, or of a line of it, is another thing."""
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
            lines[i] = json.dumps(whole(content)).encode()
        except (ValueError, IndexError):
            return flip(data)
        return b"\n".join(lines)

    def swap(data: bytes) -> bytes:
        lines = data.split(b"\n")
        i, j = dice.randrange(len(lines)), dice.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
        return b"\n".join(lines)

    return {
        "flip": flip, "digit": digit, "odd": odd, "sealed": lambda data: odd(data, seal), "swap": swap,
        "gone": bytes, "other": lambda _: dice.choice([*kept.values()]),
        "cut": lambda data: data[: at(data)],
        "double": lambda data: data + data,
        "hole": lambda data: data[: (i := at(data))] + b"\0" * min(64, len(data) - i) + data[i + 64 :],
        "noise": lambda data: data[: (i := at(data))] + dice.randbytes(16) + data[i + 16 :],
        "empty": lambda data: b"",
    }  # fmt: skip


def damaged(tally: Tally, count: int, dice: random.Random) -> None:
    """Each time one file is damaged in one way: whoever reads the run says so in one line, or finds what was written,
    if need be up to an older checkpoint; a run that goes on from there ends as it had ended."""
    with tempfile.TemporaryDirectory() as place, quick():
        out = a_run(Path(place))
        kept = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        truth = read_all(out)
        older = Path(shutil.copytree(out, Path(place) / "older"))
        for suffix in ("json", "npz"):
            (older / f"checkpoints/00000004.{suffix}").unlink()
        states = {4: truth["state"], 3: read_all(older)["state"]}
        while tally.tries < count:
            name, ways = dice.choice(NAMES), mutations(dice, kept)
            way = dice.choice([way for way in ways if way != "sealed"])
            reader = dice.choice(["read"] * 3 + ["resume", "commands"])
            path = out / name
            sealed = way == "odd" and dice.random() < 0.3  # by someone who computes the digest anew
            if way == "gone":
                path.unlink()
            else:
                path.write_bytes(ways["sealed" if sealed else way](kept[path]))
            what = (name, "sealed" if sealed else way, reader)
            with tally.attempt(what):
                if reader == "commands":
                    _command(tally, what, ["doctor", str(out)])
                    _command(tally, what, ["compare", str(out), str(out)])
                elif reader == "resume":
                    session.resume(out)
                    examine(out)
                    if not sealed and read_all(out)["state"] != truth["state"]:
                        tally.fail("silent", what)
                else:
                    examine(out)
                    found = read_all(out)
                    cut = found["records"] == truth["records"][: len(found["records"])]  # as a crash may leave them
                    run = {k: v for k, v in found["run"].items() if k in truth["run"]} == truth["run"]
                    result = found["result"] == (None if what[:2] == ("result.json", "gone") else truth["result"])
                    same = run and result and cut
                    if not sealed and not (same and states.get(found["state"][0]) == found["state"]):
                        tally.fail("silent", what)
            for other in [*out.rglob("*")]:
                if other.is_file() and other not in kept:
                    other.unlink()
            for other, data in kept.items():
                if not other.is_file() or other.read_bytes() != data:
                    other.write_bytes(data)


def _command(tally: Tally, what: Any, argv: list[str]) -> None:
    """One that the user types: 0, 1 and 2 are how it may end, with one line for the last."""
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(said):
        code = main(argv)
    if code not in (0, 1, 2) or "Traceback" in said.getvalue() or "\x1b" in said.getvalue():
        tally.fail("tracebacks", f"{what}: {argv[0]} code {code}: {said.getvalue()}")


@contextmanager
def quick() -> Iterator[None]:
    """Runs of one kind share a compiled program, and what is installed does not change meanwhile."""
    real, entries = session.build, plugins.entry_points
    session.build, plugins.entry_points = tiny.share_builds(), cache(entries)
    try:
        yield
    finally:
        session.build, plugins.entry_points = real, entries


LINKED = (*NAMES, "checkpoints", "figures", "figures/learning.png", "tensorboard", "tensorboard/seed-0", "damaged",
          "report.html", "stop", "run.json.partial", "records.jsonl.partial")  # fmt: skip


def strangers(tally: Tally, count: int, dice: random.Random) -> None:
    """Links, pipes and devices in the place of files: nothing outside the folder is changed, nothing is waited for."""
    with tempfile.TemporaryDirectory() as place, quick():
        whole, outside = a_run(Path(place)), Path(place) / "outside"
        outside.mkdir()
        for name in ("00000009.npz", "00000001.npz.partial", *(Path(name).name for name in LINKED)):
            (outside / name).write_text("mine")
        before = {path.name: path.read_bytes() for path in outside.iterdir()}
        while tally.tries < count:
            out = Path(shutil.copytree(whole, Path(place) / f"run-{tally.tries}"))
            name, kind = dice.choice(LINKED), dice.choice(["outside", "file", "/dev/zero", "pipe"])
            path, what = out / name, (name, kind)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            path.parent.mkdir(exist_ok=True)
            if kind == "pipe":
                os.mkfifo(path)
            else:
                path.symlink_to({"outside": outside, "file": outside / path.name}.get(kind, kind))
            with tally.attempt(what):
                way = dice.choice(["read", "resume", "page", "doctor"])
                if way == "page":
                    _command(tally, what, ["report", str(out), "--html", str(out / "report.html"), "--no-replay"])
                elif way == "doctor":
                    _command(tally, what, ["doctor", str(out), "--repair"])
                elif way == "resume":
                    session.resume(out)
                else:
                    read_all(out)
                if {p.name: p.read_bytes() if p.is_file() else p for p in outside.iterdir()} != before:
                    tally.fail("lost", what)
            shutil.rmtree(out)
