"""What a step of training takes, by the records that are here: writes src/trident/bench/pace.json, for `bench paper`.

    python benchmarks/pace.py

Microseconds of one run's wall clock per environment step and seed, on the two cores of all these records.
"""

import json
from pathlib import Path

from trident.renamed import ALGORITHMS
from trident.report.paper_table import row_name

HERE = Path(__file__).parent
TABLES = ("uav-mec-v1", "intersection", "smac/table6", "smac/table6-hard")


def pace(folder: Path) -> tuple[str, str, float]:
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert run["host"]["cores"] == 2, folder
    last = json.loads((folder / "records.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    steps = last["env_steps"] * len(run["settings"]["seeds"])
    algo = ALGORITHMS.get(run["algo"], run["algo"])
    return run["env"], row_name(run | {"algo": algo}), 1e6 * last["seconds"] / steps


def main() -> None:
    found: dict[str, dict[str, float]] = {}
    for table in TABLES:
        for path in sorted((HERE / table).rglob("run.json")):
            env, method, microseconds = pace(path.parent)
            found.setdefault(env, {})[method] = round(microseconds, 1)
    out = HERE.parent / "src/trident/bench/pace.json"
    out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(out)


main()
