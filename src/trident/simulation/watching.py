"""Episodes worth watching, and all there is to say of every step and agent in them, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.report.default_scene import default_scene
from trident.report.scene import Scene, packed
from trident.simulation.episode import Episode
from trident.types import (
    EnvSpec,
    Expectation,
    HybridAction,
    Moments,
    Physics,
    System,
    TimeStep,
    View,
    encode_params,
    mode_names,
)

Plain = dict[str, Any]
Act = Callable[[View, Any], HybridAction]
Expect = Callable[[Moments], Expectation]
DRAWS = 64
"""Of a policy in every situation, to show how sure it is."""


# --- which ----------------------------------------------------------------------------------------


def violation(spec: EnvSpec, episode: Episode) -> float:
    """Mean cost per step of an episode in units of its limits, the worst of them; a limit of zero counts as a
    thousandth."""
    cost = np.asarray(episode.steps.cost, float)
    return float((cost.mean(0) / np.maximum(spec.limits, 1e-3)).max(initial=0.0))


def choose(spec: EnvSpec, episodes: Sequence[Episode]) -> list[tuple[str, int]]:
    """The best, the median and the worst by violations, by reward where these are equal."""
    rank = lambda i: (violation(spec, episodes[i]), -float(np.mean(np.asarray(episodes[i].steps.reward))))  # noqa: E731
    order = sorted(range(len(episodes)), key=rank)
    picked = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    return [(name, i) for n, (name, i) in enumerate(picked.items()) if i not in list(picked.values())[:n]]


# --- what it looks like ---------------------------------------------------------------------------


def scene_of(env: System, episode: Episode) -> Scene:
    """The environment's own drawing, or one that fits all of them."""
    draw = getattr(env, "scene", None)
    if draw is None:
        return plain_scene(env.spec, episode)
    return draw(episode.states, **told(draw, episode))


def told(draw: Callable[..., Any], episode: Episode) -> Plain:
    """Drawings that take `changed` hear which actions the shield has altered."""
    import inspect

    return {"changed": episode.changed} if "changed" in inspect.signature(draw).parameters else {}


def plain_scene(spec: EnvSpec, episode: Episode) -> Scene:
    out, mode = episode.steps, np.asarray(episode.action.mode)
    unit = np.asarray(encode_params(spec.action, *jax.tree.map(jnp.asarray, episode.action)), float)
    costs = {c.name: out.cost[:, k] for k, c in enumerate(spec.constraints)}
    limits = {c.name: c.limit for c in spec.constraints}
    return default_scene(
        mode_names(spec), mode, np.where(_used(spec, mode), unit, np.nan), out.reward, costs, limits, out.alive,
        episode.changed,
    )  # fmt: skip


def param_names(spec: EnvSpec) -> list[str]:
    given = spec.action.param_names
    return [given[p] if p < len(given) else f"parameter {p + 1}" for p in range(spec.action.num_params)]


# --- what there is to say -------------------------------------------------------------------------


def about(env: System, spec: EnvSpec) -> Plain:
    """What all episodes of an environment have in common."""
    return {
        "modes": mode_names(spec), "params": param_names(spec), "agents": spec.num_agents,
        "signals": ["reward", *(c.name for c in spec.constraints)], "limits": spec.limits.tolist(),
        "units": ["", *(c.unit for c in spec.constraints)],
        "low": _rounded(spec.action.low), "high": _rounded(spec.action.high), "used": spec.action.used.tolist(),
    }  # fmt: skip


class Questions(NamedTuple):
    """What can be asked of an environment and a policy about many situations at once: compiled once for all episodes,
    which are filled up to one length."""

    length: int
    closed_form: Callable[[Any, HybridAction], Any] | None
    draw: Callable[[View, Any], HybridAction] | None
    expect: Callable[[Moments], Expectation] | None


def questions(
    env: System, act: Act | None = None, expect: Expect | None = None, length: int | None = None
) -> Questions:
    """`act` draws from a learned policy, `expect` asks its critics."""
    return Questions(
        env.spec.horizon if length is None else length,
        None if env.physics is None else jax.jit(_closed_form_of(env.physics)),
        None if act is None else jax.jit(jax.vmap(jax.vmap(act, in_axes=(None, 0)))),
        None if expect is None else jax.jit(expect),
    )


def track(env: System, spec: EnvSpec, name: str, episode: Episode, ask: Questions | None = None) -> Plain:
    """One policy's episode, with the answers to what can be asked."""
    out, changed = episode.steps, np.asarray(episode.changed, bool)
    before, ask = _before(episode), ask or questions(env)
    executed = _shown_params(spec, episode.action)
    whole: Plain = {
        "name": name, "scene": packed(scene_of(env, episode)), "length": len(changed),
        "reward": _rounded(out.reward), "cost": _rounded(out.cost), "mode": np.asarray(episode.action.mode).tolist(),
        "param": executed, "alive": np.asarray(out.alive, bool).tolist(), "obs": _rounded(before.obs, 3),
        "violation": violation(spec, episode),
    }  # fmt: skip
    if changed.any():
        whole |= {"changed": changed.tolist(), "intended_mode": np.asarray(episode.intended.mode).tolist(),
                  "intended_param": _shown_params(spec, episode.intended)}  # fmt: skip
    if out.cost_attribution is not None and spec.num_constraints:
        whole["caused"] = np.asarray(out.cost_attribution, bool).tolist()
    moments = Moments(before.obs, before.state, episode.action)
    return whole | _closed_form(ask, moments) | _draws(spec, ask, before, episode) | _expected(ask, moments, episode)


def _before(episode: Episode) -> TimeStep:
    """What was seen before every step."""
    first, steps = episode.first, episode.steps
    parts = {n: np.concatenate([np.asarray(getattr(first, n))[None], np.asarray(getattr(steps, n))[:-1]])
             for n in ("obs", "state", "mode_mask", "alive")}  # fmt: skip
    return steps._replace(**parts)


def _filled(tree: Any, length: int) -> Any:
    """Rows up to `length`: the last one again and again."""
    return jax.tree.map(lambda x: jnp.asarray(x)[np.minimum(np.arange(length), len(x) - 1)], tree)


def _closed_form_of(physics: Physics) -> Callable[[Any, HybridAction], Any]:
    """Reward and costs of every step as the closed form has them; and what each agent's action adds to them, beside its
    nominal one."""

    def one(state: Any, action: HybridAction) -> Any:
        whole, nominal = physics.signals(state, action), physics.nominal(state)

        def without(i: Any) -> Any:
            mine = jnp.arange(action.mode.shape[0]) == i
            mode = jnp.where(mine, nominal.mode, action.mode)
            return physics.signals(state, HybridAction(mode, jnp.where(mine[:, None], nominal.params, action.params)))

        return whole, whole - jax.lax.map(without, jnp.arange(action.mode.shape[0]))

    return lambda state, action: jax.lax.map(lambda x: one(*x), (state, action))


def _closed_form(ask: Questions, moments: Moments) -> Plain:
    if ask.closed_form is None:
        return {}
    count, rows = len(moments.state), _filled(moments, ask.length)
    whole, share = jax.device_get(ask.closed_form(rows.state, rows.action))
    return {"closed_form": _rounded(whole[:count]), "share": _rounded(share[:count])}


def _draws(spec: EnvSpec, ask: Questions, before: TimeStep, episode: Episode) -> Plain:
    """How often each mode is drawn in every situation, and mean and spread of the parameters of the mode that was."""
    if ask.draw is None:
        return {}
    count = len(episode.changed)
    keys = jax.random.split(jax.random.key(0), (ask.length, DRAWS))
    drawn = jax.device_get(ask.draw(_filled(before.view, ask.length), keys))
    mode, params = np.asarray(drawn.mode)[:count], np.asarray(drawn.params, float)[:count]  # [T, D, N], [T, D, N, P]
    chance = np.stack([(mode == m).mean(1) for m in range(spec.action.num_modes)], axis=-1)
    same = (mode == np.asarray(episode.intended.mode)[:, None])[..., None]
    found = np.maximum(same.sum(1), 1)
    mean = np.where(same, params, 0.0).sum(1) / found
    spread = np.sqrt(np.where(same, (params - mean[:, None]) ** 2, 0.0).sum(1) / found)
    return {"chance": _rounded(chance, 3), "mean": _rounded(mean), "spread": _rounded(spread, 3), "draws": DRAWS}


def _expected(ask: Questions, moments: Moments, episode: Episode) -> Plain:
    """What critics and closed form expected from each step on, and what came; an episode that was cut off by the clock
    is counted to its end."""
    if ask.expect is None:
        return {}
    found = jax.device_get(ask.expect(_filled(moments, ask.length)))
    count, steps = found.discount.shape[0], len(episode.changed)
    signals = np.concatenate([np.asarray(episode.steps.reward)[:, None], np.asarray(episode.steps.cost)], 1)[:, :count]
    came, total = np.zeros_like(signals), np.zeros(count)
    for t in reversed(range(len(signals))):
        came[t] = total = signals[t] + np.asarray(found.discount) * total
    return {"expected": {name: _rounded(v[:steps]) for name, v in found.values.items()}, "came": _rounded(came),
            "discount": _rounded(found.discount)}  # fmt: skip


def _used(spec: EnvSpec, mode: np.ndarray) -> np.ndarray:
    return spec.action.used[np.arange(mode.shape[1])[None], mode]


def _shown_params(spec: EnvSpec, action: HybridAction) -> Any:
    mode = np.asarray(action.mode)
    return _rounded(np.where(_used(spec, mode), np.asarray(action.params, float), np.nan))


def _rounded(values: Any, digits: int = 4) -> Any:
    """Lists with so many significant digits; None for what is not a number."""
    values = np.asarray(values, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where((values != 0) & np.isfinite(values), np.floor(np.log10(np.abs(values))), 0.0)
    unit = 10.0 ** np.clip(digits - 1 - size, -300, 300)
    return _plain(np.where(np.isfinite(values), np.round(values * unit) / unit, np.nan).tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if value != value else float(f"{value:.6g}")
