"""What a colour means, in every picture: of methods, modes, agents, limits. Agents are numbered from 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

INK, QUIET, PAPER, FRAME, FILL = "#1F2933", "#9AA5B1", "#FBFBF8", "#D5D9DE", "#EEF1F4"
LIMIT, SAFE = "#D13438", "#2F9E6E"
"""A limit, and what lies beyond it; what keeps it."""
REFERENCE = "#6B7680"
"""Scripted policies beside a learning curve."""
SERIES = ("#3B6FB6", "#E19C2B", "#2E8B74", "#7A5BA8", "#5C6B73", "#D1495B", "#8C6A4F", "#7A9E3A")
"""Anything else, in order."""
MODES = (
    "#E8833A",
    "#2B6CB0",
    "#8E44AD",
    "#17909E",
    "#B7791F",
    "#C2417C",
    "#4C7A34",
    "#5A67D8",
    "#F2B68A",
    "#8FB4DC",
    "#C79BDB",
    "#86CBD2",
    "#DDBF86",
    "#E39BBF",
    "#A3C48F",
    "#B0B7EE",
)
METHODS = {
    "trident": "#0047D6",
    "trident-scratch": "#5AA2F7",
    "mappo": "#8A8F94",
    "happo": "#C06C9B",
    "mappo-lag": "#8C5A3C",
    "happo-lag": "#B98B73",
    "macpo": "#7A9E3A",
    "madac": "#2AA7A7",
    "maddpg": "#E3A72F",
    "matd3": "#B5702C",
    "facmac": "#2E8B57",
    "qmix": "#7B4FB5",
    "shielded": "#E58AC0",
}
OTHERS = ("#F07A4A", "#3E4A59", "#A3123F", "#B9C12F", "#0B6E66", "#5B2A86", "#8FCB9B", "#C9A0DC")
"""Methods without a colour of their own, in order."""
VARIANTS = ("-residual", "-hybrid")
"""Drawn dashed, in the colour of their method."""
DASHES, MARKERS = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5))), "oDs^"


def mode_colour(mode: int) -> str:
    return MODES[mode % len(MODES)]


def agent_colour(agent: int) -> str:
    return SERIES[agent % len(SERIES)]


def agent_name(agent: int) -> str:
    return str(agent + 1)


def method_styles(methods: Sequence[str]) -> list[dict[str, Any]]:
    """Colour, dash, marker and width of each run's line. Nothing is as visible as TRIDENT; a variant of a method, or a
    second run of it, has the next dash."""
    strangers = [name for name in dict.fromkeys(methods) if family_of(name) not in METHODS]
    colours = METHODS | {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(strangers)}
    kinds: dict[str, int] = {}
    styles = []
    for name in methods:
        family = family_of(name)
        colour = colours[family]
        kind = kinds.get(colour, int(family != name))
        kinds[colour] = kind + 1
        styles.append(
            {
                "color": colour,
                "ls": DASHES[kind % 4],
                "marker": "*" if name == "trident" else MARKERS[kind % 4],
                "lw": {"trident": 3.2, "trident-scratch": 2.4}.get(name, 1.6),
                "zorder": 3 if name == "trident" else 2,
            }
        )
    return styles


SIGNS = "oDs^vPX<>pdhH8"
"""Of lines that must be told apart without colour."""


def line_styles(methods: Sequence[str]) -> list[dict[str, Any]]:
    """`method_styles`, and a mark for each line that no other has: a page may be printed in black and white."""
    signs = iter(SIGNS * (len(methods) // len(SIGNS) + 1))
    styles = method_styles(methods)
    for style in styles:
        star = style["marker"] == "*"
        style |= {"marker": "*" if star else next(signs), "markersize": 11 if star else 5}
        style |= {"markevery": 0.12, "markeredgecolor": "white", "markeredgewidth": 0.4}
    return styles


def family_of(method: str) -> str:
    found = next((v for v in VARIANTS if method.endswith(v)), "")
    family = method.removesuffix(found)
    return family if family in METHODS else method
