import json

import pytest
from support.run_files import write_files

from trident.errors import TridentError
from trident.report.compare import compare_table, load_runs
from trident.report.figures import draw_comparison
from trident.run_directory import write_json


def write_run(folder, algo, reward, ev, env="e", finished=True):
    metrics = [
        {"name": "exec", "better": "lower", "unit": "s", "per": None},
        {"name": "ev", "better": "lower", "unit": "", "per": None},
        {"name": "cv", "better": "lower", "unit": "", "per": "charged"},
        {"name": "charged", "better": "neither", "unit": "", "per": None},
    ]
    constraint = {"name": "energy", "limit": 0.01, "unit": "rate"}
    run = {"env": env, "algo": algo, "constraints": [constraint], "metrics": metrics, "rounds": 2}

    def seed(r):
        return {"reward": r, "metric/exec": 5.0, "metric/ev": ev, "metric/cv": 0.02, "metric/charged": 0.9}

    policies = {algo: [seed(reward), seed(reward + 0.2)], "random": [seed(-9.0), seed(-9.0)]}
    if algo == "trident":  # a reference that earlier runs did not know
        policies |= {"random": [seed(0.0), seed(0.0)], "base-policy": [seed(-6.0), seed(-6.0)]}
    result = {"policies": policies, "deterministic": algo != "trident"} if finished else None
    rows = [
        {
            "round": r,
            "episodes": 16.0 * r,
            "env_steps": 3200 * r,
            "values": {"reward": [reward] * 2, "cost/energy": [c, c]},
        }
        for r, c in ((1, 0.4), (2, 0.2))
    ]
    write_files(folder, run, result, rows)
    return folder


def test_table_has_references_first_and_every_run(tmp_path):
    folders = [
        write_run(tmp_path / "happo", "happo", -6.5, 0.2),
        write_run(tmp_path / "trident-warm", "trident", -5.7, 0.01),
    ]
    lines = compare_table(folders).splitlines()
    names = [line.split("|")[1].strip() for line in lines[2:]]
    assert names == ["random", "base-policy", "happo", "trident-warm (sampled)"]
    assert lines[2].split("|")[2].strip() == "0.00"  # as the last run measured it
    header = [c.strip() for c in lines[0].strip("|").split("|")]
    row = dict(zip(header, (c.strip() for c in lines[-1].strip("|").split("|")), strict=True))
    assert row["reward"].startswith("-5.60 [")
    assert row["E.V. %"] == "1.00"
    assert row["total V."] == "3.00"
    assert row["episodes"] == "32"
    assert row["training violations"] == "30.00"
    assert "charged" not in header


def test_references_behind_a_shield_stand_only_where_no_others_do_and_say_so(tmp_path):
    shielded = write_run(tmp_path / "shielded", "trident", -5.7, 0.01)
    result = json.loads((shielded / "result.json").read_text())
    write_json(shielded / "result.json", result | {"shielded": True})
    other = write_run(tmp_path / "happo", "happo", -6.5, 0.2)

    def names(*folders):
        return [line.split("|")[1].strip() for line in compare_table(list(folders)).splitlines()[2:]]

    assert names(shielded, other) == ["random", "trident (sampled)", "happo"]
    assert "-9.00" in compare_table([shielded, other]).splitlines()[2]  # not the shielded run's
    assert names(shielded)[:2] == ["random (shielded)", "base-policy (shielded)"]


def test_a_reference_is_shown_as_the_last_run_measured_it(tmp_path):
    """Regression: a table showed the base policy as it was before it was bettered, because an older run stood first."""
    old, new = (write_run(tmp_path / name, name, -6.5, 0.2) for name in ("happo", "mappo"))
    result = json.loads((new / "result.json").read_text())
    result["policies"]["random"] = [x | {"reward": -8.25} for x in result["policies"]["random"]]
    write_json(new / "result.json", result)
    assert "-8.25" in compare_table([old, new]).splitlines()[2]
    assert "-9.00" in compare_table([new, old]).splitlines()[2]


def test_unfinished_and_mixed_runs_are_refused_in_one_line(tmp_path):
    done = write_run(tmp_path / "a", "happo", -6.0, 0.1)
    with pytest.raises(TridentError, match="trident resume"):
        load_runs([done, write_run(tmp_path / "b", "happo", -6.0, 0.1, finished=False)])
    with pytest.raises(TridentError, match="different environments: e, f"):
        load_runs([done, write_run(tmp_path / "c", "happo", -6.0, 0.1, env="f")])
    with pytest.raises(TridentError, match="not a run directory"):
        load_runs([tmp_path / "nothing"])
    with pytest.raises(TridentError, match="at least one run"):
        load_runs([])
    (done / "result.json").write_text('{"torn')
    with pytest.raises(TridentError, match=r"result.json is damaged"):
        load_runs([done])


def test_comparison_figure(tmp_path):
    folders = [
        write_run(tmp_path / "happo", "happo", -6.5, 0.2),
        write_run(tmp_path / "trident", "trident", -5.7, 0.01),
    ]
    runs = [(run["algo"], run, records) for run, _, records in load_runs(folders)]
    path = draw_comparison(runs, tmp_path / "curves.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_run_that_was_evaluated_before_its_end_is_not_compared(tmp_path):
    folder = write_run(tmp_path / "happo", "happo", -6.5, 0.2)
    run = json.loads((folder / "run.json").read_text())
    write_json(folder / "run.json", run | {"rounds": 3})
    with pytest.raises(TridentError, match="not finished"):
        load_runs([folder])


def test_a_run_whose_records_are_lost_is_compared_by_its_result(tmp_path):
    folder = write_run(tmp_path / "happo", "happo", -6.5, 0.2)
    (folder / "records.jsonl").unlink()
    assert compare_table([folder]).splitlines()[-1].endswith("| 0 | 2 | - |")


def test_a_run_whose_references_are_still_to_be_played_is_not_finished(tmp_path):
    folder = write_run(tmp_path / "happo", "happo", -6.5, 0.2)
    result = json.loads((folder / "result.json").read_text())
    write_json(folder / "result.json", result | {"pending": ["planner"]})
    with pytest.raises(TridentError, match=r"not finished: `trident resume .*happo`"):
        load_runs([folder])
