"""Does an environment keep the contract? The check to run first on a new environment.

    import trident
    trident.check_env(MyEnv())

`find_faults` lists what must be fixed, `find_doubts` what is probably a mistake, `check_env` raises on the
first kind and warns of the second. The questions come in three rounds, each asked only if the one before found
nothing: the declaration (spec), shapes and dtypes (traced, not run), and values along random episodes. In these
one lane draws parameters inside their boxes and the others sit on the boxes' corners. `step` is called twice on
the same arguments inside one traced program, so hidden state or `numpy.random` shows as a difference. A simulator
outside JAX (`trident.types.HostEnv`) is asked what can be asked of it: see `trident.envs.checks.host`.

Whether `step` resets by itself is read from the private state: entries that every reset sets to one value (a clock,
say), had moved before the last step and are all back after it, betray a reset. Episodes of one step cannot tell.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.checks import host
from trident.envs.checks.attributes import changed_attributes, noted
from trident.envs.checks.shapes import LARGEST, declaration_faults, describe, shape_faults
from trident.envs.random_policy import choose
from trident.errors import TridentError
from trident.physics_value import physics_parts
from trident.types import ActionSpec, EnvSpec, HostEnv, HybridAction, Key, Physics, decode_params

LANES = 4  # episodes side by side: one with parameters inside their boxes, the rest on the corners
WALK = 1000  # steps of an episode that are looked at, unless told otherwise
TOLERANCE = 1e-5  # of a box's width: rounding of decode_params
ROUNDING = 2e-6  # of one call against the same call compiled beside it

SLOPES = {
    "gradient": "the gradient of physics.signals in the parameters",
    "later": "the gradient in the parameters of physics.signals one step later (after predict, under nominal)",
}

# Each program runs once, so compiling is what takes time: without optimisation it is half.
_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def check_env(env: Any, key: Key | None = None, steps: int = WALK, stochastic: bool | None = None) -> None:
    """Raise a TridentError that lists every fault of `env` (a `trident.types.Env`, or not yet); warn of every doubt.

    `steps` bounds the episodes looked at. `stochastic` says whether different keys must (True) or must not (False)
    lead to different episodes; None leaves it open.
    """
    faults, doubts = _examine(env, key, steps, stochastic)
    for doubt in doubts:
        warnings.warn(doubt, stacklevel=2)
    if faults:
        raise TridentError("\n".join([f"{_name(env)} breaks the environment contract:", *(f"- {f}" for f in faults)]))


def find_faults(env: Any, key: Key | None = None, steps: int = WALK, stochastic: bool | None = None) -> list[str]:
    """What must be fixed, one line each; empty if the environment keeps the contract."""
    return _examine(env, key, steps, stochastic)[0]


def find_doubts(env: Any, key: Key | None = None, steps: int = WALK) -> list[str]:
    """What is probably a mistake but may be meant; nothing of this kind is asked of a simulator outside JAX."""
    return [] if _outside_jax(env) else _examine(env, key, steps, None)[1]


def _examine(env: Any, key: Key | None, steps: int, stochastic: bool | None) -> tuple[list[str], list[str]]:
    if _outside_jax(env):
        return host.host_faults(env, min(steps, host.WALK)), []
    faults = list(declaration_faults(env))
    if faults:
        return faults, []
    before = noted(env)
    faults = [*shape_faults(env), *changed_attributes(env, before)]
    if faults:
        return faults, []
    dice = _Dice(jax.random.key(0) if key is None else key)
    try:
        walk = _walk(env, dice, min(env.spec.horizon, steps))
    except (
        Exception,
        SystemExit,
    ) as error:  # traced before without trouble, so the second trace met what the first left behind
        return [f"episodes fail to run ({describe(error)}); keep no state on self"], []
    faults += _purity(walk)
    faults += _randomness(env, dice, walk, stochastic)
    faults += _step_values(env.spec, walk)
    faults += _episode_ends(env.spec, walk)
    faults += _action_values(env, dice, walk)
    faults += _physics_values(env, dice, walk)
    return faults, list(_doubts(env.spec, walk))


def _outside_jax(env: Any) -> bool:
    return isinstance(env, HostEnv)


def _name(env: Any) -> str:
    return getattr(getattr(env, "spec", None), "name", "") or type(env).__name__


# --- third round: values along random episodes ----------------------------------------------------


class _Walk(NamedTuple):
    """Random episodes [LANES, 1 + steps, ...], the reset at index 0."""

    states: Any  # private env states
    out: Any  # TimeSteps, as numpy
    again: Any  # (states, out) of the second, identical calls
    valid: np.ndarray  # [LANES, 1 + steps]: not beyond the episode's end

    def sample(self, tree: Any, most: int) -> Any:
        """Up to `most` valid entries spread over the episodes, [B, ...]."""
        lane, step = np.nonzero(self.valid)
        pick = np.linspace(0, len(lane) - 1, min(most, len(lane))).astype(int)
        return jax.tree.map(lambda a: a[lane[pick], step[pick]], tree)


class _Dice:
    """Keys and actions from numpy: jax's own generator would be compiled anew for every shape."""

    def __init__(self, key: Key):
        bits = np.asarray(jax.random.key_data(key))
        self.generator, self.word, self.impl = np.random.default_rng(bits.ravel()), bits.shape, jax.random.key_impl(key)

    def keys(self, *lead: int) -> Key:
        bits = self.generator.integers(2**32, size=(*lead, *self.word), dtype=np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(bits), impl=self.impl)

    def actions(self, spec: ActionSpec, *lead: int) -> tuple[np.ndarray, np.ndarray]:
        """Lots [*lead, N, M] and unit parameters [*lead, N, P] for `_choose`."""
        agents, modes, params = spec.low.shape
        lots = self.generator.uniform(size=(*lead, agents, modes))
        return lots.astype(np.float32), self.generator.uniform(-1, 1, (*lead, agents, params)).astype(np.float32)


def _walk(env: Any, dice: _Dice, steps: int) -> _Walk:
    def episode(keys: Key, lots: Any, unit: Any) -> Any:
        def step(carry: Any, inputs: Any) -> Any:
            (state, mask), (key, lots, unit) = carry, inputs
            action = choose(env.spec.action, mask, lots, unit)
            first, second = (env.step(key, state, action) for _ in range(2))
            return (first[0], first[1].mode_mask), (first, second)

        start = tuple(env.reset(keys[0]) for _ in range(2))
        carry = (start[0][0], start[0][1].mode_mask)
        _, rest = jax.lax.scan(step, carry, (keys[1:], lots, unit))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, rest)

    lots, unit = dice.actions(env.spec.action, LANES, steps)
    unit[1:] = np.sign(unit[1:])
    (states, out), again = _jit(jax.vmap(episode))(dice.keys(LANES, 1 + steps), lots, unit)
    out = _plain(out)
    ended = (out.terminated | out.truncated)[:, 1:]
    before = np.cumsum(ended, axis=1) - ended  # ends strictly before each step
    valid = np.concatenate([np.ones((LANES, 1), bool), before == 0], axis=1)
    return _Walk(jax.tree.map(_host, states), out, _plain(again), valid)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _host(leaf: Any) -> Any:
    return leaf if _is_key(leaf) else np.asarray(leaf)


def _plain(tree: Any) -> Any:
    """Leaves as numpy arrays, random keys as their bits."""
    return jax.tree.map(lambda a: np.asarray(jax.random.key_data(a) if _is_key(a) else a), tree)


def _where(bad: Any) -> str:
    """The first offence in [LANES, 1 + steps, ...]."""
    lane, step = np.argwhere(bad)[0][:2]
    moment = f"after step {step}" if step else "after reset"
    return f"{moment}, parameters on the corners of their boxes" if lane and step else moment


def _purity(walk: _Walk) -> Iterator[str]:
    first = jax.tree.leaves_with_path((_plain(walk.states), walk.out))
    for (path, a), b in zip(first, jax.tree.leaves(walk.again), strict=True):
        differs = (a != b) & ~((a != a) & (b != b))
        if a.dtype.kind == "f":  # the compiler may fuse, and so round, the two calls differently
            with np.errstate(invalid="ignore"):
                differs &= ~(np.abs(a - b) <= ROUNDING * (1.0 + np.abs(a)))
        if differs.any():
            what = f"TimeStep{jax.tree_util.keystr(path[1:])}" if path[0].idx else "the env state"
            yield (
                f"{what} differs between two calls with the same arguments ({_where(differs)}); "
                "keep no state on self and draw randomness from the key only"
            )


def _randomness(env: Any, dice: _Dice, walk: _Walk, stochastic: bool | None) -> Iterator[str]:
    if stochastic is None:
        return
    keys = dice.keys(8)
    state = jax.tree.map(lambda a: a[0, 0], walk.states)
    action = choose(env.spec.action, walk.out.mode_mask[0, 0], *dice.actions(env.spec.action))
    results = _jit(lambda k: (jax.vmap(env.reset)(k), jax.vmap(lambda k: env.step(k, state, action))(k)))(keys)
    differs = any((leaf != leaf[:1]).any() for leaf in jax.tree.leaves(_plain(results)))
    if stochastic and not differs:
        yield "different keys lead to equal resets and steps; draw from the key given, not from a fixed one"
    if differs and not stochastic:
        yield "different keys lead to different resets or steps, though the environment is said to be deterministic"


def _step_values(spec: EnvSpec, walk: _Walk) -> Iterator[str]:
    out, valid = walk.out, walk.valid
    values = {name: getattr(out, name) for name in ("obs", "state", "reward", "cost", "margin")}
    values |= {f"metric {name!r}": value for name, value in out.metrics.items()}
    for name, value in values.items():
        bad = ~np.isfinite(value) & valid.reshape(valid.shape + (1,) * (value.ndim - 2))
        if bad.any():
            yield f"{name} is not finite {_where(bad)}; look for 0/0, log(0), sqrt of a negative or an overflow"
        elif (bad := (np.abs(value) > LARGEST) & valid.reshape(bad.shape[:2] + (1,) * (value.ndim - 2))).any():
            yield f"{name} is beyond {LARGEST:g} {_where(bad)}; squares of such numbers overflow: choose another unit"
    stuck = ~out.mode_mask.any(-1) & valid[..., None]
    if stuck.any():
        yield f"mode_mask allows no mode {_where(stuck)}; allow one for every agent, the dead included"
    for k, constraint in enumerate(spec.constraints):
        bad = (out.cost[..., k] < 0) & valid
        if bad.any():
            yield f"cost {constraint.name!r} is negative {_where(bad)}; costs are >= 0, signed quantities go to margin"


def _episode_ends(spec: EnvSpec, walk: _Walk) -> Iterator[str]:
    out, valid = walk.out, walk.valid
    ended = (out.terminated | out.truncated) & valid
    if ended[:, 0].any():
        yield "reset returns an episode that has ended; terminated and truncated must be False there"
        return
    early = out.truncated & ~out.terminated & valid
    early[:, spec.horizon :] = False
    if early.any():
        yield f"truncated fires {_where(early)}, before the horizon of {spec.horizon}; use terminated for other ends"
    if valid.shape[1] == 1 + spec.horizon and (valid[:, -1] & ~ended[:, -1]).any():
        yield f"truncated does not fire at the horizon; set it when {spec.horizon} steps (spec.horizon) are over"
    if _returns_to_start(jax.tree.leaves(_plain(walk.states)), ended):
        yield (
            "step resets by itself: after an episode's last step the env state is a fresh one; return the final state "
            "and observation there (values bootstrap from them), the caller resets"
        )


def _returns_to_start(leaves: list[np.ndarray], ended: np.ndarray) -> bool:
    """Do entries that every reset sets alike, and that had moved, all jump back with the episodes' last steps?"""
    entries = np.concatenate([leaf.reshape(*ended.shape, -1).astype(np.float64) for leaf in leaves], axis=-1)
    start = entries[:, 0]
    verdicts = []
    for lane in np.flatnonzero(ended.any(1)):
        end = int(ended[lane].argmax())
        moved = (start == start[0]).all(0) & (entries[lane, end - 1] != start[lane])
        if moved.any():
            verdicts.append((entries[lane, end] == start[lane])[moved].all())
    return bool(verdicts) and all(verdicts)


def _action_values(env: Any, dice: _Dice, walk: _Walk) -> Iterator[str]:
    """Scripted policies and the shield, on states of the episodes seen."""
    if not env.scripted and env.shield is None:
        return
    states, out = walk.sample(walk.states, 64), walk.sample(walk.out, 64)
    keys = dice.keys(len(out.reward))

    def decide(key: Key, state: Any, mask: Any, lots: Any, unit: Any) -> Any:
        scripted = {name: policy(key, state) for name, policy in env.scripted.items()}
        intended = choose(env.spec.action, mask, lots, unit)
        return scripted, intended, (intended, None) if env.shield is None else env.shield(state, intended)

    results = _jit(jax.vmap(decide))(keys, states, out.mode_mask, *dice.actions(env.spec.action, len(keys)))
    scripted, intended, (executed, changed) = _plain(results)
    for name, action in scripted.items():
        yield from _illegal(f"scripted {name!r}", env.spec, out, action)
    if env.shield is None:
        return
    yield from _illegal("shield", env.spec, out, executed)
    touched = (executed.mode != intended.mode) | (executed.params != intended.params).any(-1)
    if (touched & ~changed).any():
        yield "shield alters an action whose 'changed' flag is False; flag it, or return it untouched"


def _illegal(who: str, spec: EnvSpec, out: Any, action: Any) -> Iterator[str]:
    """Modes and parameters [B, N, ...] outside what is allowed; the dead may do as they like."""
    mode, agents = action.mode, np.arange(spec.num_agents)
    if ((mode < 0) | (mode >= spec.action.num_modes)).any():
        yield f"{who} chooses a mode outside 0 .. {spec.action.num_modes - 1}"
        return
    if (out.alive & ~np.take_along_axis(out.mode_mask, mode[..., None], -1)[..., 0]).any():
        yield f"{who} chooses a mode that mode_mask forbids; choose among the allowed ones of that state"
    low, high, used = (table[agents, mode] for table in (spec.action.low, spec.action.high, spec.action.used))
    slack = TOLERANCE * (1.0 + high - low)
    alive = out.alive[..., None]
    if (alive & used & ((action.params < low - slack) | (action.params > high + slack))).any():
        yield f"{who} returns parameters outside the box of their mode; clip them to action.low and high"
    if (alive & ~used & (action.params != 0)).any():
        yield f"{who} returns parameters that their mode does not read (action.used); set them to zero"


def _bulk_values(physics: Physics, spec: EnvSpec, state: Any, unit: Any) -> Iterator[str]:
    """Whether it says what the functions of one row say; of near ties, in a few rows, it may think otherwise."""
    mode = np.arange(len(state))[:, None] % spec.action.num_modes + np.zeros((1, spec.num_agents), np.int32)
    action = HybridAction(jnp.asarray(mode, jnp.int32), decode_params(spec.action, jnp.asarray(mode), unit))
    ways = (physics, replace(physics, bulk=None))
    parts = _jit(lambda s: [physics_parts(way, 1 + spec.num_constraints, s, action) for way in ways])(state)
    got, right = _plain(parts)
    for name, part in (("signals", "immediate"), ("nominal", "current"), ("predict", "next_step")):
        bulk, row = getattr(got, part), getattr(right, part)
        off = (np.abs(bulk - row) > 1e-3 * (1.0 + np.abs(row))).any(-1)
        if off.mean() > 0.1:
            yield f"physics.bulk.{name} says something else than physics.{name} in {off.mean():.0%} of the rows"
            break  # what builds on it differs too


def _physics_values(env: Any, dice: _Dice, walk: _Walk) -> Iterator[str]:
    physics, spec = env.physics, env.spec
    if physics is None:
        return
    out = walk.sample(walk.out, 16)

    def evaluate(state: Any, mode: Any, unit: Any) -> Any:
        modes = jnp.broadcast_to(mode, spec.num_agents)
        action = HybridAction(modes, decode_params(spec.action, modes, unit))

        def ahead(params: Any) -> Any:
            """Summed, for a gradient that is not finite makes the sum's so."""
            successor = physics.predict(state, action._replace(params=params))
            return physics.signals(successor, physics.nominal(successor)).sum()

        gradient = jax.jacrev(lambda params: physics.signals(state, action._replace(params=params)))(action.params)
        return {
            "signals": physics.signals(state, action),
            "predict": physics.predict(state, action),
            "gradient": gradient,
            "later": jax.grad(ahead)(action.params),
        }

    modes, (_, unit) = np.arange(spec.action.num_modes, dtype=np.int32), dice.actions(spec.action, len(out.reward))
    unit[1::2] = np.sign(unit[1::2])
    every_mode = jax.vmap(jax.vmap(evaluate, (None, 0, None)), (0, None, 0))
    values, nominal = _jit(lambda s, u: (every_mode(s, modes, u), jax.vmap(physics.nominal)(s)))(out.state, unit)
    for name, value in _plain(values).items():
        finite = np.isfinite(value).all(axis=(0, *range(2, value.ndim)))
        if not finite.all():
            yield (
                f"{SLOPES.get(name, f'physics.{name}')} is not finite in mode {np.flatnonzero(~finite).tolist()}; "
                "every mode needs a smooth value everywhere in its box, corners and unread parameters included"
            )
            break  # what builds on it is not finite either
    yield from _illegal("physics.nominal", spec, out, _plain(nominal))
    if physics.bulk is not None:
        yield from _bulk_values(physics, spec, out.state, unit)
    if physics.base_policy is not None:
        suggested = _plain(_jit(jax.vmap(jax.vmap(physics.base_policy)))(out.obs))
        if not (np.isfinite(suggested.preference).all() and np.isfinite(suggested.unit).all()):
            yield (
                "physics.base_policy is not finite; "
                "whatever an agent sees, every mode needs a preference and parameters"
            )
        elif np.abs(np.where(spec.action.used, suggested.unit, 0.0)).max(initial=0.0) > 1.0 + 1e-4:
            yield "physics.base_policy suggests parameters outside [-1, 1]; scale them to the box of their mode"


def _told_apart(spec: EnvSpec, obs: np.ndarray) -> Iterator[str]:
    """An observation [rows, N, O] that never changes but differs between agents of a kind is a name tag."""
    fixed, kinds = (obs == obs[:1]).all(axis=0), spec.kind_of
    for agent, kind in enumerate(kinds):
        first = int(np.argmax(kinds == kind))
        tag = fixed[agent] & fixed[first] & (obs[0, agent] != obs[0, first])
        if tag.any():
            yield (
                f"obs[{int(np.argmax(tag))}] tells agents {first} and {agent} apart for ever, though they are of a "
                "kind; if they are not interchangeable, give them different spec.kinds"
            )
            return


def _doubts(spec: EnvSpec, walk: _Walk) -> Iterator[str]:
    out, valid = walk.out, walk.valid.copy()
    ended = (out.terminated | out.truncated) & valid
    flat = spec.action.used & (spec.action.low == spec.action.high)
    if flat.any():
        yield f"action.used is True for a box without width at {np.argwhere(flat)[0].tolist()}; set it False"
    if not valid[:, min(spec.horizon, valid.shape[1]) - 1 :].any() or valid.shape[1] <= spec.horizon:
        yield f"no random episode reached the horizon of {spec.horizon}, so truncation was not seen"
    if _returns_to_start([out.obs, out.state], ended):
        yield "the last observation of an episode looks like a fresh one; it must belong to the final state"
    yield from _told_apart(spec, out.obs[valid])
    valid[:, 0] = False
    for k, constraint in enumerate(spec.constraints):
        cost, margin = out.cost[..., k][valid], out.margin[..., k][valid]
        indicator = constraint.unit == "rate" and np.isin(cost, (0.0, 1.0)).all()
        if indicator and ((cost == 1) & (margin > 0) | (cost == 0) & (margin < 0)).any():
            yield f"margin of {constraint.name!r} disagrees in sign with its 0/1 cost: margin > 0 must mean cost 0"
