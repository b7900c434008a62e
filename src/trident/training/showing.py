"""Episodes of a run to be looked at: the best, the median and the worst of a few, a scripted policy beside them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from trident.simulation import watching
from trident.training.backend import backend_of
from trident.training.settings import Setup
from trident.types import AlgoState, HostEnv, Moments

Plain = dict[str, Any]
STREAM = 2**31 + 2
"""Folded into the base key: episodes that are shown were neither trained nor evaluated on."""
PLAYED, PLAYED_OUTSIDE = 12, 3
"""Episodes of which three are shown; simulators outside JAX are slow."""
MOST_BYTES = 2_600_000
"""Of all episodes of a page, compressed; as text they take a third more, and a page stays below five megabytes."""


def replay(
    setup: Setup,
    state: AlgoState,
    deterministic: bool,
    beside: str | None = None,
    seed: int = 0,
    most: int = MOST_BYTES,
) -> Plain:
    """`state`: the algorithm's, of one seed; `beside`: a scripted policy that plays the same episodes."""
    env, spec, algorithm, settings = setup
    backend, shielded = backend_of(env), settings.shielded
    count = PLAYED_OUTSIDE if isinstance(env, HostEnv) else PLAYED
    base = jax.random.fold_in(jax.random.key(seed), STREAM)
    keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(jnp.arange(count))
    policy = backend.policy_of(env, algorithm, deterministic)(state)
    mine = backend.play_many(env, policy, keys, None, shielded)
    picked = watching.choose(spec, mine)
    act = expect = None
    if algorithm.name not in env.scripted:
        act = lambda view, key: algorithm.act(state, view, key, False)[0]  # noqa: E731
        expect = _expect(setup, state)
    episodes: list[Plain] = []
    others: list[Any] = [None] * len(picked)
    if beside is not None:
        chosen = keys[jnp.array([i for _, i in picked])]
        others = backend.play_many(env, backend.scripted(env, beside), chosen, None, shielded)
    length = max(len(e.changed) for e in [*mine, *others] if e is not None)
    ask, plain = watching.questions(env, act, expect, length), watching.questions(env, length=length)
    if env.physics is not None:
        plain = plain._replace(closed_form=ask.closed_form)
    for (rank, i), other in zip(picked, others, strict=True):
        tracks = [watching.track(env, spec, algorithm.name, mine[i], ask)]
        tracks += [watching.track(env, spec, beside, other, plain)] if other is not None and beside is not None else []
        episodes.append({"rank": rank, "number": i + 1, "tracks": tracks})
    about = watching.about(env, spec)
    return fitted(about | {"played": count, "shielded": shielded, "episodes": episodes}, most)


def _expect(setup: Setup, state: AlgoState) -> Callable[[Moments], Any] | None:
    ask = setup.algorithm.expect
    return None if ask is None else lambda moments: ask(state, moments)


# --- what a page can hold -------------------------------------------------------------------------


def fitted(content: Plain, most: int) -> Plain:
    """The same with as much as fits; what is left out is said."""
    left_out: list[str] = []
    for what, smaller in _reductions(content):
        if size(content) <= most:
            break
        content = smaller()
        left_out.append(what)
    return content | {"left_out": left_out}


def size(content: Any) -> int:
    return len(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 6))


def _reductions(content: Plain) -> Iterator[tuple[str, Callable[[], Plain]]]:
    """What can be missed, the least first. Each takes away from what is left of `content`'s episodes."""
    episodes = content["episodes"]

    def without(*names: str) -> Plain:
        for episode in episodes:
            for track in episode["tracks"]:
                for name in names:
                    track.pop(name, None)
        return content

    def alone() -> Plain:
        for episode in episodes:
            del episode["tracks"][1:]
        return content

    def only(rank: str) -> Plain:
        episodes[:] = [e for e in episodes if e["rank"] != rank] if len(episodes) > 1 else episodes
        return content

    yield "observations", lambda: without("obs")
    yield "the median episode", lambda: only("median")
    yield "the scripted policy", alone
    yield "the best episode", lambda: only("best")
    yield "what the closed form says of agents, and draws", lambda: without("share", "chance", "mean", "spread")
    for every in (2, 4, 8):
        yield f"all but every {every}. step", lambda every=every: _thinned(content, 2)


def _thinned(content: Plain, every: int) -> Plain:
    """Every so many-th step alone."""
    for episode in content["episodes"]:
        for track in episode["tracks"]:
            length = track["length"]
            kept = [*range(0, length, every)]
            for name, values in track.items():
                if isinstance(values, list) and len(values) == length:
                    track[name] = [values[t] for t in kept]
            frames = [0, *(t + 1 for t in kept)]
            scene = track["scene"]
            scene["agents"] = [scene["agents"][t] for t in frames] if scene["agents"] else []
            for plane in (scene["map"], *scene["panels"]):
                for name in ("frames", "clock", "title", "alert", "view"):
                    if isinstance(plane[name], list) and len(plane[name]) == length + 1:
                        plane[name] = [plane[name][t] for t in frames]
            track["length"] = len(kept)
    return content
