"""The manifest for people."""

from __future__ import annotations

from typing import Any

from trident.export.sim_to_real import verdict


def card(manifest: dict[str, Any]) -> str:
    env, run, kind = manifest["env"], manifest["run"], manifest["kind"]
    who = f"one agent (number {manifest['agent']})" if kind == "agent" else f"{manifest['spaces']['agents']} agents"
    lines = [
        f"# {run['algo']} on {env['name']}, {who}",
        "",
        f"Seed {run['seed']}, round {run['round']} of {run['rounds']}, commit {run['commit']}; actions are flown "
        f"{manifest['flown']}{', behind the shield' if manifest['shielded'] else ''}. Made {manifest['made']} by "
        f"trident {manifest['versions']['trident']}.",
        "",
        "## Limits",
        "",
        *(f"- **{c['name']}**: {c['words']}" for c in manifest["constraints"]),
        *([] if manifest["constraints"] else ["none"]),
        "",
        f"Specification {manifest['specification'][:16]}. Worst of {manifest['worst episode']['episodes']} recorded "
        "episodes: "
        + (", ".join(f"{k} {v:.4g}" for k, v in manifest["worst episode"].items() if k != "episodes") or "no costs")
        + ".",
        "",
        "## Evaluation",
        "",
        *_evaluation(manifest["evaluation"]),
        "",
        "## Where the world is not as simulated",
        "",
        *_sim_to_real(manifest.get("sim to real")),
        "",
        "## Where it stops",
        "",
        f"Fail-safe: {manifest['fail_safe']['name']} ({manifest['fail_safe']['help']}). Base policy: "
        f"{'yes' if manifest['base_policy'] else 'none'}.",
        "",
        "Covered:",
        "",
        *(f"- {text}" for text in manifest["certificate"]["covers"]),
        "",
        "Not covered:",
        "",
        *(f"- {text}" for text in manifest["certificate"]["does not cover"]),
        "",
        *_parity(manifest.get("parity")),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _evaluation(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["It has not been evaluated."]
    how = f"{found['episodes']} episodes per seed, {found['flown']} actions, seeds {found['seeds']}"
    rows = [f"| {name} | {v['value']:.4g} | {v['low']:.4g} | {v['high']:.4g} |" for name, v in found["values"].items()]
    return [f"{how}; 95 % bootstrap over seeds.", "", "| per step | mean | from | to |", "|---|---:|---:|---:|", *rows]


def _sim_to_real(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["Nobody has tried (`trident eval RUN --sim-to-real`, before the export)."]
    names = list(found["limits"])
    rows = [
        f"| {row['what']} | {100 * row['wrong by']:g} % | " + " | ".join(f"{c:.4g}" for c in row["cost"]) + " |"
        for row in found["rows"]
    ]
    return [verdict(found), "", f"| wrong | by | {' | '.join(names)} |", "|---|---:|" + "---:|" * len(names), *rows]


def _parity(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    rows = [f"{name} {row['largest error']:.1e} ({row['rows']:,} rows)" for name, row in found["programs"].items()]
    times = found["latency"]
    return [
        "## NumPy against JAX",
        "",
        f"No mode differs; largest errors: {', '.join(rows)}. One decision of the policy where it was exported: "
        f"{times['p50 ms']} ms (median), {times['p99 ms']} ms (99 %).",
    ]
