# pyright: reportMissingImports=false
"""TRIDENT's environments as PettingZoo's and Gymnasium's.

The action of an agent is Tuple(Discrete(modes), Box(-1, 1, [parameters])): the mode, and its parameters in units of
that mode's box, so that one box serves all modes. One mode alone leaves the Box, no parameters the Discrete. Costs are
in infos[agent]["cost"] by name, the team's reward is every agent's, and masks stand in infos[agent]["action_mask"] (of
the modes). `state()` is the global state.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Env as GymnasiumEnv
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv

from trident.errors import TridentError
from trident.types import ActionSpec, EnvSpec, HostEnv, HybridAction, TimeStep

MODES = ("rgb_array", "human")
DPI, INCHES = 80, (8.0, 6.0)


def parallel_env(env: Any, render_mode: str | None = None) -> Parallel:
    return Parallel(_made(env), render_mode)


def single_env(env: Any, render_mode: str | None = None) -> Single:
    return Single(_made(env), render_mode)


def _made(env: Any) -> Any:
    if isinstance(env, str):
        raise TridentError(f"hand in the environment itself: trident.make_env({env!r})")
    return env


# --- one interface to both kinds of environments --------------------------------------------------


@lru_cache(maxsize=8)
def _compiled(env: Any) -> tuple[Any, Any]:
    """Once for an environment, whoever plays it."""
    return jax.jit(env.reset), jax.jit(env.step)


class Player:
    """One episode after another, in JAX (compiled) or in a simulator."""

    def __init__(self, env: Any):
        self.env, self.spec = env, env.spec
        self.states: list[Any] = []
        if not isinstance(env, HostEnv):
            self._reset, self._step = _compiled(env)

    def reset(self, seed: int) -> Any:
        if isinstance(self.env, HostEnv):
            out, state = self.env.reset(seed), self.env.env_state
        else:
            self._key, key = jax.random.split(jax.random.key(seed))
            state, out = self._reset(key)
        self.states = [state]
        return self._seen(out)

    def step(self, mode: np.ndarray, unit: np.ndarray) -> Any:
        params: Any = _decode(self.spec.action, mode, unit)
        action: Any = HybridAction(jnp.asarray(mode, jnp.int32), params)
        if isinstance(self.env, HostEnv):
            out, state = self.env.step(jax.device_get(action)), self.env.env_state
        else:
            self._key, key = jax.random.split(self._key)
            state, out = self._step(key, self.states[-1], action)
        self.states.append(state)
        return self._seen(out)

    def _seen(self, out: TimeStep) -> Any:
        return jax.tree.map(np.asarray, jax.device_get(out))

    def picture(self) -> np.ndarray:
        """[height, width, 3] of now."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # matplotlib takes a second to import
        from matplotlib.figure import Figure

        from trident.report.scene_figure import draw_step

        figure = Figure(INCHES, DPI)
        canvas = FigureCanvasAgg(figure)
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(self.states))
        draw_step(self.env, figure, stacked, len(self.states) - 1)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _decode(spec: ActionSpec, mode: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """As `types.decode_params`, in NumPy."""
    rows = np.arange(len(mode))
    low, high, used = (table[rows, mode] for table in (spec.low, spec.high, spec.used))
    return np.where(used, low + 0.5 * (unit + 1.0) * (high - low), 0.0).astype(np.float32)


def action_space(spec: ActionSpec, agent: int) -> spaces.Space:
    discrete = spaces.Discrete(spec.num_modes)
    box = spaces.Box(-1.0, 1.0, (spec.num_params,), np.float32)
    if not spec.used[agent].any():
        return discrete
    return box if spec.num_modes == 1 else spaces.Tuple((discrete, box))


def split_action(spec: ActionSpec, agent: int, action: Any) -> tuple[int, np.ndarray]:
    """(mode, unit parameters) of what the space of `action_space` holds."""
    none = np.zeros(spec.num_params, np.float32)
    if not spec.used[agent].any():
        return int(action), none
    mode, unit = (0, action) if spec.num_modes == 1 else action
    return int(mode), np.clip(np.asarray(unit, np.float32), -1.0, 1.0)


def _info(spec: EnvSpec, out: TimeStep, agent: int) -> dict[str, Any]:
    costs = {c.name: float(out.cost[k]) for k, c in enumerate(spec.constraints)}
    return {"cost": costs, "action_mask": out.mode_mask[agent].astype(np.int8)}


def _check_mode(player: Player, render_mode: str | None) -> str | None:
    if render_mode not in (None, *MODES):
        raise TridentError(f"render_mode is one of {', '.join(MODES)}, not {render_mode!r}")
    if render_mode is not None and not (hasattr(player.env, "scene") or hasattr(player.env, "draw")):
        raise TridentError(f"{player.spec.name} cannot be drawn: leave out render_mode")
    return render_mode


class _Window:
    """Where render_mode="human" shows its pictures."""

    def __init__(self) -> None:
        self.shown: Any = None

    def show(self, picture: np.ndarray) -> None:
        from matplotlib import pyplot as plt

        if self.shown is None:
            plt.ion()
            self.shown = plt.figure().add_axes((0, 0, 1, 1)).imshow(picture)
        self.shown.set_data(picture)
        plt.pause(0.001)

    def close(self) -> None:
        if self.shown is not None:
            from matplotlib import pyplot as plt

            plt.close(self.shown.figure)
            self.shown = None


# --- PettingZoo -----------------------------------------------------------------------------------


class Parallel(ParallelEnv):
    """See the module."""

    def __init__(self, env: Any, render_mode: str | None):
        self.player, self.window = Player(env), _Window()
        self.spec: EnvSpec = env.spec
        self.render_mode = _check_mode(self.player, render_mode)
        self.metadata = {
            "name": f"{self.spec.name}_v{self.spec.version}",
            "render_modes": list(MODES),
            "render_fps": 10,
            "is_parallelizable": True,
        }
        self.possible_agents = [f"agent_{i}" for i in range(self.spec.num_agents)]
        self.agents: list[str] = []
        wide = spaces.Box(-np.inf, np.inf, (self.spec.obs_dim,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, wide)
        self.action_spaces = {a: action_space(self.spec.action, i) for i, a in enumerate(self.possible_agents)}
        self.state_space = spaces.Box(-np.inf, np.inf, (self.spec.state_dim,), np.float32)
        self.random, _ = seeding.np_random()

    def observation_space(self, agent: str) -> spaces.Space:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        if seed is not None:
            self.random, _ = seeding.np_random(seed)
        self.out = self.player.reset(int(self.random.integers(2**31)))
        self.agents = [a for i, a in enumerate(self.possible_agents) if self.out.alive[i]]
        return self._observations(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        mode, unit = np.zeros(self.spec.num_agents, np.int32), np.zeros(self.spec.action.low.shape[::2], np.float32)
        for i, agent in enumerate(self.possible_agents):
            mode[i] = np.argmax(self.out.mode_mask[i])  # of those who are out
            if agent in actions:
                mode[i], unit[i] = split_action(self.spec.action, i, actions[agent])
        self.out = self.player.step(mode, unit)
        alive = {a for i, a in enumerate(self.possible_agents) if self.out.alive[i]}
        told = [a for a in self.possible_agents if a in self.agents or a in alive]  # who acted, and who joins
        over = bool(self.out.terminated)
        cut = bool(self.out.truncated) and not over
        terminations = {a: over or a not in alive for a in told}
        truncations = {a: cut and not terminations[a] for a in told}
        rewards = dict.fromkeys(told, float(self.out.reward))
        result = self._observations(told), rewards, terminations, truncations, self._infos(told)
        self.agents = [] if over or cut else [a for a in told if a in alive]
        if self.render_mode == "human":
            self.render()
        return result

    def state(self) -> np.ndarray:
        return self.out.state

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        picture = self.player.picture()
        if self.render_mode == "human":
            self.window.show(picture)
            return None
        return picture

    def close(self) -> None:
        self.window.close()

    def _observations(self, agents: list[str]) -> dict[str, np.ndarray]:
        return {a: self.out.obs[self.possible_agents.index(a)].copy() for a in agents}

    def _infos(self, agents: list[str]) -> dict[str, dict[str, Any]]:
        return {a: _info(self.spec, self.out, self.possible_agents.index(a)) for a in agents}


# --- Gymnasium ------------------------------------------------------------------------------------


class Single(GymnasiumEnv):
    """See the module; for systems of one agent."""

    def __init__(self, env: Any, render_mode: str | None):
        if env.spec.num_agents != 1:
            raise TridentError(
                f"{env.spec.name} has {env.spec.num_agents} agents: trident.to_pettingzoo offers all of them"
            )
        self.player, self.window = Player(env), _Window()
        self.metadata = {"render_modes": list(MODES), "render_fps": 10}
        self.render_mode = _check_mode(self.player, render_mode)
        self.observation_space = spaces.Box(-np.inf, np.inf, (env.spec.obs_dim,), np.float32)
        self.action_space = action_space(env.spec.action, 0)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.out = self.player.reset(int(self.np_random.integers(2**31)))
        return self.out.obs[0].copy(), _info(self.player.spec, self.out, 0)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        mode, unit = split_action(self.player.spec.action, 0, action)
        self.out = self.player.step(np.array([mode], np.int32), unit[None])
        over = bool(self.out.terminated) or not bool(self.out.alive[0])
        cut = bool(self.out.truncated) and not over
        return self.out.obs[0].copy(), float(self.out.reward), over, cut, _info(self.player.spec, self.out, 0)

    def render(self) -> Any:
        picture = self.player.picture()
        if self.render_mode == "human":
            self.window.show(picture)
            return None
        return picture

    def close(self) -> None:
        self.window.close()
