"""The intersection's roads as a SUMO network, from text: the map that SMARTS drives on.

Nodes, edges and connections are written as SUMO's plain XML and joined by `netconvert`, which eclipse-sumo brings. The
lanes come out where `intersection_roads` has them, turns included: every connection carries its own polyline. SMARTS
wants maps that begin at (0, 0), so the junction's centre lies at (`middle`, `middle`).
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np

from trident.envs.intersection.config import ARMS, LANES, IntersectionConfig
from trident.envs.intersection.roads import EXIT_TURN, LANE_OF, PATHS, poses, roads
from trident.errors import TridentError

NAMES = ("south", "east", "north", "west")
"""Where arm k comes from."""
SPARE = 20.0
"""Road behind the start of an arm, and beyond the goal, m."""
PIECES = 32
"""Straight pieces of a turn's polyline: 4 mm off the circle at most."""


def middle(config: IntersectionConfig) -> float:
    """x and y of the junction's centre on the map."""
    return config.half_box + max(config.approach, config.exit) + SPARE


def network(config: IntersectionConfig) -> dict[str, str]:
    """Plain XML by kind of file: nod, edg, con."""
    c, at = config, middle(config)
    nodes = [f'<node id="centre" x="{at}" y="{at}" type="priority" radius="{c.half_box - LANES * c.lane_width}"/>']
    edges, connections = [], []
    for arm, name in enumerate(NAMES):
        x, y = [(0.0, -at), (at, 0.0), (0.0, at), (-at, 0.0)][arm]
        nodes.append(f'<node id="{name}" x="{x + at}" y="{y + at}" type="dead_end"/>')
        traits = f'numLanes="{LANES}" width="{c.lane_width}" speed="{c.top_speed}"'
        edges.append(f'<edge id="{name}-in" from="{name}" to="centre" {traits}/>')
        edges.append(f'<edge id="{name}-out" from="centre" to="{name}" {traits}/>')
        connections += [_connection(c, arm, path) for path in range(PATHS)]
    text = {"nod": ("nodes", nodes), "edg": ("edges", edges), "con": ("connections", connections)}
    return {kind: f"<{tag}>\n" + "\n".join(lines) + f"\n</{tag}>\n" for kind, (tag, lines) in text.items()}


def _connection(config: IntersectionConfig, arm: int, path: int) -> str:
    s = np.linspace(0.0, float(roads(config).inside[path]), PIECES + 1)
    x, y, _ = poses(config, s, path, arm, ahead=0.0)
    at = middle(config)
    shape = " ".join(f"{px:.3f},{py:.3f}" for px, py in zip(x + at, y + at, strict=True))
    lane = LANES - 1 - int(LANE_OF[path])  # SUMO counts lanes from the right
    to = NAMES[(int(EXIT_TURN[path]) + arm + ARMS // 2) % ARMS]
    ends = f'from="{NAMES[arm]}-in" to="{to}-out" fromLane="{lane}" toLane="{lane}"'
    return f'<connection {ends} shape="{shape}"/>'


def build(config: IntersectionConfig, folder: Path, netconvert: str) -> Path:
    """Write the network into `folder` and join it; the folder is then a SMARTS scenario without traffic."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        plain = {kind: Path(scratch) / f"map.{kind}.xml" for kind in ("nod", "edg", "con")}
        for kind, text in network(config).items():
            plain[kind].write_text(text, encoding="utf-8")
        command = [netconvert, "-n", plain["nod"], "-e", plain["edg"], "-x", plain["con"]]
        command += ["-o", folder / "map.net.xml", "--no-turnarounds", "true", "--offset.disable-normalization", "true"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise TridentError(f"netconvert could not build the map: {' '.join(done.stderr.split())}")
    return folder
