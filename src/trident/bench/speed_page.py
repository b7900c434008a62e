"""A record of `trident bench speed` as tables: for the terminal, and as a page of the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from trident.report.tables import markdown


class Section(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]
    annotate: str = ""


def sections(record: dict[str, Any]) -> Iterator[Section]:
    makers = {"env": _env, "update": _update, "training": _training, "overheads": _overheads, "growth": _growth}
    goals = [[g["name"], figure(g["value"]), g["goal"], "yes" if g["met"] else "NO"] for g in record["goals"]]
    if goals:
        yield Section("Goals", ["", "measured", "goal", "met"], goals)
    for part, make in makers.items():
        if part in record:
            yield from make(record[part])
    yield _circumstances(record["about"])


def show(record: dict[str, Any], console: Console) -> None:
    for section in sections(record):
        table = Table(
            title=section.title, title_justify="left", caption=section.annotate or None, caption_justify="left"
        )
        for i, name in enumerate(section.header):
            table.add_column(name, justify="left" if i == 0 else "right")
        for row in section.rows:
            table.add_row(*row)
        console.print(table)


def page(record: dict[str, Any]) -> str:
    """docs/speed.md."""
    parts = [PREFACE]
    for s in sections(record):
        parts += [f"## {s.title}", markdown(s.header, s.rows), *([s.annotate] if s.annotate else [])]
    return "\n\n".join(parts) + "\n"


PREFACE = """\
# Speed

Written by `trident bench speed --out benchmarks/speed/record.json --docs docs/speed.md`; do not edit by hand.

What is compared takes turns in one process, and the shortest time of each counts: a ratio says more than a time on a
machine with other work to do. Nothing is compared across sections; the last table tells when and where each was
measured."""


def _circumstances(about: dict[str, Any]) -> Section:
    header = ["", "when", "commit", "cores", "jax", "load before", "after", "minutes", "peak MiB"]
    rows = [
        [
            part + (" (quick)" if a["quick"] else ""),
            a["when"],
            a["commit"] or "unknown",
            str(a["cores"]),
            a["jax"],
            *(f"{a['load_average'][k][0]:.1f}" for k in ("before", "after")),
            f"{a['seconds'] / 60:.1f}",
            figure(a["peak_rss_mib"]),
        ]
        for part, a in about.items()
    ]
    processors = ", ".join(sorted({a["processor"] for a in about.values()}))
    annotate = f"{processors}. A load above the number of cores means other work: absolute times are then too long."
    return Section("Circumstances", header, rows, annotate)


def figure(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _env(part: dict[str, Any]) -> Iterator[Section]:
    rows = [
        [name, figure(rate), figure(part["jax_over"][name]) + " x" if name in part["jax_over"] else ""]
        for name, rate in part["steps_per_second"].items()
    ]
    annotate = f"Random actions, {part['envs']} environments; each environment's step counts as one."
    annotate += f" NumPy: {part['missing']}." if part["missing"] else ""
    yield Section("The environment alone (uav-mec)", ["", "env steps/s", "JAX is faster by"], rows, annotate)


def _update(part: dict[str, Any]) -> Iterator[Section]:
    size, faster = part["size"], part["jax_faster_by"]
    two = f"{part['cg_steps']['jax preconditioned']} preconditioned steps"
    title = {
        "jax": f"jax, every state, {part['cg_steps']['jax']} steps",
        "jax preconditioned": f"jax, every state, {two}",
        "jax few": f"jax, {size['fisher']} states, {two}",
    }
    rows = []
    for name, seconds in part["seconds"].items():
        outcome, public = part["results"][name], faster.get("public", {}).get(name)
        change = ", ".join(f"{x:+.4f}" for x in outcome["change"])
        rows.append(
            [
                title.get(name, name),
                figure(1e3 * seconds),
                "" if public is None else figure(public) + " x",
                percent(outcome["error"]) if "error" in outcome else "",
                figure(outcome["kl"]),
                change,
                figure(outcome["evaluations"]),
            ]
        )
    layers = " x ".join(map(str, size["hidden"]))
    annotate = (
        f"Hidden layers {layers}, batch {size['batch']:,}, conjugate-gradient steps for the reward and each of "
        f"{size['constraints']} costs ({part['cg_steps']['jax']} in PyTorch), {part['threads']} threads. JAX "
        "multiplies with the Fisher matrix through one linearisation; PyTorch differentiates the KL twice, from "
        "scratch in every product (public) or keeping the first derivative's graph (kept-graph). The steps are "
        "preconditioned by the Fisher matrix's inverse layer by layer (K-FAC). The error is the distance from the "
        "exact solution with every state's Fisher matrix, in that matrix's norm, the worst of reward and costs "
        "(PyTorch's is that of the first row). KL and changes are those of every state. The last of "
        "JAX's ways is TRIDENT's default."
    )
    annotate += f" PyTorch: {part['missing']}." if part["missing"] else f" PyTorch {part['torch']}."
    header = ["", "ms per update", "faster than public", "error", "KL", "change of reward, costs", "line-search trials"]
    yield Section("One agent's constrained update", header, rows, annotate)
    if "parts" in part:
        rows = [[name, figure(1e3 * seconds)] for name, seconds in part["parts"].items()]
        annotate = f"Compiled apart, with the Fisher matrix of every state and {two}; each forms anew what it needs."
        yield Section("Where an update's time goes", ["", "ms"], rows, annotate)


def _training(part: dict[str, Any]) -> Iterator[Section]:
    header = ["", "env steps/s", "round, s", "rollout", "critics", "policies", "compile, s", "(CPU s)", "program, MiB"]
    rows = []
    for name, r in part.items():
        shares = [percent(r["share"][k]) for k in ("rollout", "critics", "policies")]
        took = r["compile"]["round"]
        rows.append(
            [
                name,
                figure(r["steps_per_second"]),
                figure(r["round_seconds"]),
                *shares,
                figure(took["wall"]),
                figure(took["cpu"]),
                figure(sum(r["program_mib"].values())),
            ]
        )
    annotate = (
        "uav-mec, one seed. The critics' share is `update` asked for its critics alone; policies are the rest of the "
        "round. Compilation is without the persistent cache; later runs of the same kind take the program from it."
    )
    yield Section("Training rounds", header, rows, annotate)
    header = ["", "GFLOP per update", "GFLOP/s", "sgemm GFLOP/s", "share"]
    rows = [
        [
            name,
            figure(r["flops"]["update"] / 1e9),
            figure(r["gflops"]),
            figure(r["sgemm_gflops"]),
            percent(r["of_sgemm"]),
        ]
        for name, r in part.items()
    ]
    annotate = (
        "Against a 4096 x 512 x 512 single-precision product in the same turns. Operations are XLA's count of the "
        "program before optimisation, with the bodies of loops analysed one by one and multiplied by their trips (XLA "
        "counts a body once); a line search counts as one trial."
    )
    yield Section("Arithmetic of the update", header, rows, annotate)


def _overheads(part: dict[str, Any]) -> Iterator[Section]:
    rows = [
        [name, percent(o["of_round"]), percent(o["of_update"]), percent(o["of_flops"])]
        for name, o in part["overhead"].items()
    ]
    annotate = (
        f"{part['size'].capitalize()} networks if nothing else is said, from scratch; the same data and noise "
        "for both variants of a row, and one trial in every line search. Two "
        "programs are told apart to about two hundredths; what is timed alone is sure, and a little too much."
    )
    yield Section("What TRIDENT's parts cost", ["", "of a round", "of an update", "of its operations"], rows, annotate)


def _growth(part: dict[str, Any]) -> Iterator[Section]:
    numbers = {"N": "agents", "K": "constraints; the fitted power is of 1 + K", "M": "modes"}
    for axis, g in part.items():
        header = ["operations", *(f"{axis} = {at}" for at in g["at"]), "exponent", "R2", "last two"]
        rows = [
            [name, *(f"{c:.3g}" for c in counts), *(f"{g['fit'][name][k]:.2f}" for k in ("exponent", "r2", "last"))]
            for name, counts in g["flops"].items()
        ]
        yield Section(f"Growth with {axis} ({numbers[axis]})", header, rows)
