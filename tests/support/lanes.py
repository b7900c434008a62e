"""Lanes of a map that SUMO built."""

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.smarts.road_map import middle


def read_lanes(net: Path, config: IntersectionConfig) -> dict[str, np.ndarray]:
    """Polylines [n, 2] of a built map's lanes, in the world frame of `intersection_roads`: "south-in_0", ..., and for
    every way through the junction "south-in_0 west-out_0", joined from its internal lanes."""
    root = ET.parse(net).getroot()
    lanes = {lane.attrib["id"]: lane.attrib for edge in root.iter("edge") for lane in edge.iter("lane")}
    shape = {name: _points(lane["shape"]) - middle(config) for name, lane in lanes.items()}
    after = {
        f"{link.attrib['from']}_{link.attrib['fromLane']}": link.attrib
        for link in root.iter("connection")
        if link.attrib["from"].startswith(":")
    }
    found = {name: points for name, points in shape.items() if not name.startswith(":")}
    for link in root.iter("connection"):
        if link.attrib["from"].startswith(":"):
            continue
        via, pieces = link.attrib["via"], []
        while via is not None:
            pieces.append(shape[via])
            via = after[via].get("via")
        name = "{from}_{fromLane} {to}_{toLane}".format(**link.attrib)
        found[name] = np.concatenate(pieces)
    return found


def _points(shape: str) -> np.ndarray:
    return np.array([[float(number) for number in point.split(",")[:2]] for point in shape.split()])
