"""`make fuzz`: every attack, counted. `make soak`: one run under all of them for hours.

python tests/fuzz/run.py --scale 0.1 --only commands files --record benchmarks/reliability/record.json
python tests/fuzz/run.py --soak 120 --out /somewhere
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
sys.path[0] = str(Path(__file__).parents[1])

from fuzz import environments, files, resumed, soak, values  # noqa: E402
from fuzz.tally import Tally  # noqa: E402
from trident.report.tables import insert, markdown  # noqa: E402

ATTACKS: dict[str, tuple[str, int, Callable[[Tally, int, random.Random], None]]] = {
    "commands": ("command lines", 1_000, values.commands),
    "configs": ("TOML files for `--config`", 1_000, values.configs),
    "arguments": ("configs and arguments of `trident.train` from Python", 8_000, values.arguments),
    "traced": ("allowed configs, traced as programs", 300, values.traced),
    "files": ("damaged files of a run", 5_000, files.damaged),
    "strangers": ("links, pipes and devices in place of files", 300, files.strangers),
    "environments": ("broken environments given to `train`", 1_000, environments.environments),
    "kills": ("processes killed, stopped or interrupted, clocks shifted", 200, resumed.kills),
    "disks": ("disks full or read-only, folders moved away", 50, resumed.disks),
}
"""name -> (what, tries at scale 1, the attack)"""
RESULTS = ("refused", "sound", "tracebacks", "silent", "hangs", "lost")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of tries")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=[*ATTACKS], help="attacks")
    parser.add_argument("--fresh", action="store_true", help="count anew what an earlier process has tried")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn")
    parser.add_argument("--record", type=Path, help="where the counts are kept; those of other attacks stay")
    parser.add_argument("--docs", type=Path, help="page with the marks of a table `reliability`")
    parser.add_argument("--soak", type=float, help="minutes of one run under attack, instead")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder of the soak: it goes on there")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it; ours must not
    if options.soak is not None:
        told = soak.soak(options.out, options.soak, random.Random(time.time_ns()))
        print(json.dumps(told, indent=1))
        if options.record:
            options.record.write_text(json.dumps(told, indent=1) + "\n")
        if options.docs:
            insert(options.docs, "soak", soak_table(told))
        return 0 if told["bit for bit"] and not told["faults"] else 1
    record = json.loads(options.record.read_text()) if options.record and options.record.exists() else {}
    for name in options.only:
        attack(name, options, record)
    if options.docs:
        insert(options.docs, "reliability", table(record))
    return 1 if any(sum(record[name][r] for r in RESULTS[2:]) for name in options.only) else 0


def attack(name: str, options: argparse.Namespace, record: dict[str, Any]) -> None:
    """Up to the wanted number of tries; an earlier process may have made some of them."""
    what, count, tried = ATTACKS[name]
    before = {} if options.fresh else {k: v for k, v in record.get(name, {}).items() if k != "what"}
    tally, kept = Tally(**before), time.monotonic()

    def keep(plain: dict[str, Any], every: float = 10.0) -> None:
        nonlocal kept
        record[name] = {"what": what} | plain
        if options.record and time.monotonic() - kept >= every:
            kept = time.monotonic()
            options.record.parent.mkdir(parents=True, exist_ok=True)
            options.record.write_text(json.dumps(record, indent=1) + "\n")

    tally.keep = keep
    left = max(1, round(count * options.scale)) - tally.tries
    if left > 0:
        tried(tally, tally.tries + left, random.Random(f"{options.seed} {name} {tally.tries}"))
    keep(tally.plain(), 0.0)
    print(f"{name}: {tally.tries} tries, {', '.join(f'{getattr(tally, r)} {r}' for r in RESULTS)}, "
          f"{tally.seconds:.0f} s", flush=True)  # fmt: skip
    for example in tally.examples:
        print(f"  {example}", flush=True)


def table(record: dict) -> str:
    rows = [[entry["what"], f"{entry['tries']:,}", *(f"{entry[r]:,}" for r in RESULTS)] for entry in record.values()]
    return markdown(["attack", "tries", "one line", "sound", "tracebacks", "silent", "hangs", "lost"], rows)


def soak_table(told: dict[str, Any]) -> str:
    rows = [["minutes", f"{told['minutes']:.0f}"]] + [[what, str(n)] for what, n in sorted(told["happened"].items())]
    rows += [["faults", "; ".join(told["faults"]) or "none"], ["rounds", f"{told['rounds']:,}"]]
    rows += [["state and records", "bit for bit the undisturbed run's" if told["bit for bit"] else "DIFFERENT"]]
    return "\n\n".join([markdown(["soak", ""], rows), *(f"Note: {note}." for note in told.get("notes", []))])


if __name__ == "__main__":
    sys.exit(main())
