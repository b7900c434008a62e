"""A run flown by its exported programs, with and without the guard, while sensors, links and agents fail.

Faults are drawn from the episode's number alone, so that both fly through the same ones. Without the guard a policy is
flown as it is: on the last observation that came, whatever it says.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from trident.api import Run
from trident.errors import TridentError
from trident.export.bundle import Choices, export
from trident.export.functions import leaves_of
from trident.fields import check_name
from trident.report.progress import Progress, Silent
from trident.report.tables import plain
from trident.run_directory import FIGURES, write_json
from trident.runtime.arbiter import Branch
from trident.runtime.bundle import Bundle, open_bundle
from trident.runtime.guard import Guard
from trident.runtime.threefry import fold_in, key_of
from trident.types import HostEnv, HybridAction

STREAM = 2**31 + 4
"""Folded into the base key: episodes that nobody has trained, been evaluated or recorded on."""


@dataclass(frozen=True)
class Faults:
    dropout: float = 0.0
    """Share of an agent's messages that never arrive."""
    delay: int = 0
    """Steps by which every message is late."""
    noise: float = 0.0
    """Standard deviation that is added to every number of an observation."""
    nan: float = 0.0
    """Share of messages in which a number is not one."""
    agent_loss: int = 0
    """Agents of which nothing is heard any more from some step on."""


def parse_faults(text: str) -> Faults:
    """ "dropout=0.2,delay=2,agent-loss=1" """
    found: dict[str, Any] = {}
    whole = {f.name: f.type for f in fields(Faults)}
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        key = name.strip().replace("-", "_")
        check_name("fault", key, whole, "--faults")
        try:
            number = float(value)
            if not math.isfinite(number) or number < 0 or (whole[key] == "int" and number != int(number)):
                raise ValueError
        except ValueError:
            raise TridentError(f"--faults wants NAME=NUMBER, e.g. dropout=0.2, not {word!r}") from None
        found[key] = int(number) if whole[key] == "int" else number
    if max(found.get("dropout", 0.0), found.get("nan", 0.0)) > 1.0:
        raise TridentError("--faults: dropout and nan are shares, at most 1")
    return Faults(**found)


GUARDED_EPISODES = 10


class Flown(NamedTuple):
    """Per step, over all episodes."""

    reward: float
    cost: np.ndarray  # [K]
    worst: np.ndarray  # [K]: the worst episode's mean
    branches: dict[str, float]
    """Share of agent-decisions by branch; empty without the guard."""


@dataclass
class Link:
    """What arrives of one episode's observations."""

    faults: Faults
    rng: np.random.Generator
    agents: int
    horizon: int
    past: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lost = np.full(self.agents, self.horizon + 1)
        chosen = self.rng.permutation(self.agents)[: self.faults.agent_loss]
        self.lost[chosen] = self.rng.integers(1, max(2, self.horizon // 2), len(chosen))

    def carry(self, obs: np.ndarray, t: int) -> tuple[dict[int, np.ndarray], int]:
        """({agent: observation} of those that arrive now, the step they were made in)."""
        f, n = self.faults, self.agents
        self.past.append(obs)
        made = t - f.delay
        noise, drop, spoil = self.rng.normal(size=obs.shape), self.rng.random(n), self.rng.random(n)
        where = self.rng.integers(obs.shape[1], size=n)
        if made < 0:
            return {}, made
        rows = (self.past[made] + f.noise * noise).astype(np.float32)
        rows[np.arange(n)[spoil < f.nan], where[spoil < f.nan]] = np.nan
        return {i: rows[i] for i in range(n) if drop[i] >= f.dropout and t < self.lost[i]}, made


def fly(
    run: Run, bundle: Bundle, faults: Faults, guarded: bool, episodes: int, progress: Progress | None = None
) -> Flown:
    progress, env = progress or Silent(), run.setup.env
    if isinstance(env, HostEnv):
        raise TridentError(f"{env.spec.name} is a simulator outside JAX, which --guarded cannot fly yet")
    spec, seconds = run.setup.spec, run.setup.spec.step_seconds or 0.1
    key = jax.random.fold_in(jax.random.key(run.setup.settings.seed), STREAM)
    reset_key, step_key = jax.random.split(key)
    step = jax.jit(jax.vmap(env.step))
    state, last = jax.jit(jax.vmap(env.reset))(jax.random.split(reset_key, episodes))
    links = [Link(faults, np.random.default_rng(e), spec.num_agents, spec.horizon) for e in range(episodes)]
    pilots = [(Guarded if guarded else Unguarded)(bundle, e) for e in range(episodes)]
    running, length = np.ones(episodes, bool), np.zeros(episodes)
    reward, cost = np.zeros(episodes), np.zeros((episodes, spec.num_constraints))
    seen = jax.device_get(last)
    for t in range(spec.horizon):
        private = leaves_of(jax.device_get(state)) if run.setup.settings.shielded else None
        modes, params = [], []
        for e, (link, pilot) in enumerate(zip(links, pilots, strict=True)):
            arrived, made = link.carry(np.asarray(seen.obs[e]), t)
            own = None if private is None else {name: x[e] for name, x in private.items()}
            mode, values = pilot.act(arrived, made * seconds, t * seconds, row_of(seen, e), own)
            modes.append(mode)
            params.append(values)
        action = HybridAction(np.stack(modes).astype(np.int32), np.stack(params).astype(np.float32))  # pyright: ignore[reportArgumentType]
        state, after = step(jax.random.split(jax.random.fold_in(step_key, t), episodes), state, action)
        seen = jax.device_get(after)
        reward += np.where(running, seen.reward, 0.0)
        cost += np.where(running[:, None], seen.cost, 0.0)
        length += running
        running &= ~(seen.terminated | seen.truncated)
        if t % 20 == 0:
            progress.doing(f"flying {'with' if guarded else 'without'} the guard: step {t} of {spec.horizon}")
        if not running.any():
            break
    means = cost / length[:, None]
    return Flown(
        float(reward.sum() / length.sum()), cost.sum(0) / length.sum(), means.max(0), shares(pilots) if guarded else {}
    )  # fmt: skip


def row_of(tree: Any, e: int) -> Any:
    return jax.tree.map(lambda x: x[e], tree)


def shares(pilots: list[Any]) -> dict[str, float]:
    total = np.sum([pilot.guard.counts.branches for pilot in pilots], axis=0)
    taking_part = max(1, total.sum() - total[Branch.IDLE])
    return {b.label: float(total[b] / taking_part) for b in Branch if b is not Branch.IDLE}


class Guarded:
    def __init__(self, bundle: Bundle, episode: int):
        self.guard = Guard(bundle, seed=episode)
        self.cost: Any = None

    def act(self, arrived: Any, made: float, now: float, seen: Any, env_state: Any) -> tuple[np.ndarray, np.ndarray]:
        measured = {} if now == 0.0 else {"cost": seen.cost, "margin": seen.margin}
        action, _ = self.guard.decide(
            arrived, made, mask=seen.mode_mask, alive=seen.alive, env_state=env_state, now=now, elapsed=0.0, **measured
        )
        return action.mode, action.params


class Unguarded:
    """The last that came, and nothing (zeros) before anything has come."""

    def __init__(self, bundle: Bundle, episode: int):
        self.bundle, self.key, self.count = bundle, key_of(episode), 0
        self.obs = np.zeros((bundle.space.agents, bundle.space.obs_dim), np.float32)

    def act(self, arrived: Any, made: float, now: float, seen: Any, env_state: Any) -> tuple[np.ndarray, np.ndarray]:
        for agent, row in arrived.items():
            self.obs[agent] = row
        key = fold_in(self.key, np.asarray(self.count))
        self.count += 1
        programs = self.bundle.programs
        out = programs["policy"](obs=self.obs[None], mask=seen.mode_mask[None], alive=seen.alive[None], key=key[None])
        if self.bundle.manifest["shielded"]:
            shield = programs["shield"]
            rows = {name: np.asarray(env_state[name])[None] for name in shield.inputs if name in env_state}
            out = shield(mode=out["mode"], params=out["params"], **rows)
        # an actuator ignores what is not a number
        return out["mode"][0], np.nan_to_num(out["params"][0])


# --- the comparison -------------------------------------------------------------------------------


def compare_guarded(
    run: Run, faults: Faults, episodes: int, deterministic: bool | None = None, progress: Progress | None = None
) -> str:
    """The table; beside it `guarded.json` in the run, and a figure. The bundle it flies is made for it alone."""
    with tempfile.TemporaryDirectory() as place:
        choices = Choices(deterministic=deterministic, ahead=-1, observations=2_000)
        export(run, Path(place) / "bundle", choices, progress)
        bundle = open_bundle(Path(place) / "bundle")
        flights = {"no faults": Faults()} | ({"faults": faults} if faults != Faults() else {})
        found = {
            (what, guarded): fly(run, bundle, each, guarded, episodes, progress)
            for what, each in flights.items()
            for guarded in (False, True)
        }
    costs = [(c.name, c.limit) for c in run.setup.spec.constraints]
    content = {
        "faults": asdict(faults), "episodes": episodes,
        "flights": [
            {"what": what, "guarded": guarded, "reward": f.reward, "branches": f.branches,
             "cost": dict(zip([n for n, _ in costs], f.cost.tolist(), strict=True)),
             "worst episode": dict(zip([n for n, _ in costs], f.worst.tolist(), strict=True))}
            for (what, guarded), f in found.items()
        ],
    }  # fmt: skip
    write_json(run.out / "guarded.json", content)
    draw(content, costs, run.out / FIGURES / "guarded.png")
    return table(found, costs)


def table(found: dict[tuple[str, bool], Flown], costs: list[tuple[str, float]]) -> str:
    header = ["per step", "reward"]
    for name, limit in costs:
        header += [f"{name} <= {limit:g}", "worst episode"]
    header += ["policy", "base policy", "fail-safe"]
    rows = []
    for (what, guarded), f in found.items():
        row = [f"{what}, {'guarded' if guarded else 'as it is'}", f"{f.reward:.4g}"]
        for (_, limit), value, worst in zip(costs, f.cost, f.worst, strict=True):
            row += [f"{value:.4g} {'ok' if value <= limit else 'OVER'}", f"{worst:.4g}"]
        if guarded:
            learned = f.branches["policy"] + f.branches["shield"]
            row += [f"{100 * x:.1f} %" for x in (learned, f.branches["base policy"], f.branches["fail-safe"])]
        else:
            row += ["-", "-", "-"]
        rows.append(row)
    return plain(header, rows)


def draw(content: dict[str, Any], costs: list[tuple[str, float]], path: Path) -> None:
    """Mean costs as bars over their limits, flight by flight; and the reward."""
    from matplotlib.figure import Figure

    flights = content["flights"]
    labels = [f"{f['what']}\n{'guarded' if f['guarded'] else 'as it is'}" for f in flights]
    colours = ["#4477aa" if f["guarded"] else "#ccbb44" for f in flights]
    figure = Figure(figsize=(3.2 * (1 + len(costs)), 3.2), layout="constrained")
    for axes, (name, limit) in zip(
        figure.subplots(1, 1 + len(costs), squeeze=False)[0], [("reward", None), *costs], strict=True
    ):
        axes.bar(labels, [f["reward"] if limit is None else f["cost"][name] for f in flights], color=colours)
        axes.set_title(f"{name} per step", fontsize=9)
        axes.tick_params(labelsize=7)
        if limit is not None:
            axes.axhline(limit, color="#bb2222", linewidth=1, linestyle="--")
            axes.text(
                0.99,
                limit,
                f"limit {limit:g}",
                transform=axes.get_yaxis_transform(),
                ha="right",
                va="bottom",
                fontsize=7,
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
