"""Record what SMARTS does in two short episodes, and the map it drives on, for tests that run without it.

python benchmarks/smarts/record.py          # about 3 minutes; needs the extra `smarts`; writes tests/envs/data/smarts*

Everything that passes between the adapter and SMARTS is kept, and beside it what SMARTS' own map says of each vehicle:
the lane nearest to it, the distance along that lane and the offset to its left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.smarts.bridge import Readings
from trident.envs.intersection.smarts.env import SmartsIntersection, SmartsRoad
from trident.simulation import batch

OUT = Path(__file__).parents[2] / "tests" / "envs" / "data"
EPISODES = {"aim": 11, "aggressive": 4}
"""Scripted policy -> seed."""


class Watched(SmartsRoad):
    """SMARTS with a notebook."""

    def __init__(self, config: IntersectionConfig):
        super().__init__(config)
        self.entered, self.left, self.steps = [], [], []

    def enter(self, vehicle: int, x: float, y: float, heading: float, speed: float) -> None:
        super().enter(vehicle, x, y, heading, speed)
        self.entered.append((len(self.steps), vehicle, x, y, heading, speed))

    def leave(self, vehicle: int) -> None:
        super().leave(vehicle)
        self.left.append((len(self.steps), vehicle))

    def advance(self, pedals: Mapping[int, tuple[float, float, float]]) -> Readings:
        from smarts.core.coordinates import Point  # pyright: ignore[reportMissingImports]

        seen = super().advance(pedals)
        n = self.config.num_vehicles
        asked, along, beside = np.zeros((n, 3)), np.full(n, np.nan), np.full(n, np.nan)
        names = np.full(n, "", "U20")
        for i, triple in pedals.items():
            asked[i] = triple
            here = Point(float(seen.x[i]), float(seen.y[i]))
            lane = self._sim.road_map.nearest_lane(here)
            at = lane.to_lane_coord(here)
            names[i], along[i], beside[i] = lane.lane_id, at.s, at.t
        row = {**seen._asdict(), "pedals": asked, "lane": names, "along": along, "beside": beside}
        self.steps.append({name: np.asarray(v, np.float32) if name != "lane" else v for name, v in row.items()})
        return seen


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for name, seed in EPISODES.items():
        env = SmartsIntersection(road=Watched)
        out = batch.reset(env, seed)
        observations = []
        while not (out.terminated or out.truncated):
            out = batch.step(env, batch.as_numpy(env.scripted[name](jax.random.key(0), env.env_state)))
            observations.append(out.obs)
        road = env._road
        assert isinstance(road, Watched)
        steps = batch.stack([{k: v for k, v in s.items() if k != "lane"} for s in road.steps])
        steps["touching"] = steps["touching"] > 0.5
        lanes = np.stack([s["lane"] for s in road.steps])
        path = OUT / f"smarts_{name}.npz"
        np.savez_compressed(
            path, seed=seed, lane=lanes, entered=np.array(road.entered), left=np.array(road.left),
            obs=np.stack(observations[::40]), **steps,
        )  # fmt: skip
        print(path, path.stat().st_size, len(lanes), "steps; touching:", int(steps["touching"].any((1, 2)).sum()))
        text = (Path(road._folder.name) / "map.net.xml").read_text(encoding="utf-8")
        env.close()
    (OUT / "map.net.xml").write_text(re.sub(r"<!--.*?-->\s*", "", text, flags=re.S), encoding="utf-8")


if __name__ == "__main__":
    main()
