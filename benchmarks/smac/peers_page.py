"""The tables of docs/smac.md that come from peers.jsonl."""

from __future__ import annotations

from trident.report.tables import markdown


def page(rows: list[dict]) -> str:
    last = {tuple(row.get(k) for k in ("kind", "map", "script", "pace", "simulator")): row for row in rows}
    makers = {"battles": battles, "decisions": decisions, "speed": speed}
    kinds = {kind: [row for row in last.values() if row["kind"] == kind] for kind in makers}
    return "\n\n".join(markdown(*makers[kind](found)) for kind, found in kinds.items() if found)


def battles(rows: list[dict]) -> tuple[list[str], list[list[str]]]:
    """One line per map and script, the simulators side by side."""
    who = ["trident", "placed", "smaclite"]
    header = ["map", "script", *(f"win % ({w})" for w in who), *(f"steps ({w})" for w in who)]
    header += [f"enemies left % ({w})" for w in who]
    table = []
    for name, script in dict.fromkeys((row["map"], row["script"]) for row in rows):
        found = {row["simulator"]: row for row in rows if (row["map"], row["script"]) == (name, script)}
        cells = []
        for key, scale in (("win", 100), ("length", 1), ("enemies_left", 100)):
            cells += [f"{scale * found[w][key]:.0f}" if w in found else "-" for w in who]
        table.append([name, script, *cells])
    return header, table


def decisions(rows: list[dict]) -> tuple[list[str], list[list[str]]]:
    maps = list(dict.fromkeys(row["map"] for row in rows))
    header = ["focus-nearest decides", *(f"win % ({m})" for m in maps), *(f"late by, ticks ({m})" for m in maps)]
    table = []
    for pace in dict.fromkeys(row["pace"] for row in rows):
        found = {row["map"]: row for row in rows if row["pace"] == pace}
        late = [f"{found[m]['first_shot'] - found[m]['enemy_first_shot']:.1f}" for m in maps]
        table.append([pace, *(f"{100 * found[m]['win']:.0f}" for m in maps), *late])
    return header, table


def speed(rows: list[dict]) -> tuple[list[str], list[list[str]]]:
    header = ["map", "clock", "trident", "SMAX", "smaclite", "over SMAX", "over smaclite"]
    table = []
    for name in dict.fromkeys(row["map"] for row in rows):
        found = {row["simulator"]: row["steps_per_second"] for row in rows if row["map"] == name}
        for clock in ("cpu", "wall"):
            rate = {who: found[who][clock] for who in found}
            cells = [f"{rate[who]:,.0f}" if who in rate else "-" for who in ("trident", "SMAX", "smaclite")]
            over = [f"{rate['trident'] / rate[who]:,.1f} x" if who in rate else "-" for who in ("SMAX", "smaclite")]
            table.append([name, clock, *cells, *over])
    return header, table
