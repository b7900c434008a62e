"""A run over several devices: each has a part of the seeds, and the devices of one seed a part of its environments.

Seeds are mapped by hand (`shard_map`): a device's program is that of its own seeds, with no word to the others. The
environments of one seed are left to the compiler, which puts sums in where rows meet (`trident.maths.spread`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from trident import replay as replays
from trident.maths.spread import AXIS
from trident.training.host import key_shapes
from trident.training.layout import SEED, Layout, place
from trident.training.loop import CompiledRun, Program, RunState
from trident.training.memory import check_program
from trident.training.settings import Setup
from trident.training.warm_start import warm_start


def build(setup: Setup, one: Program, layout: Layout) -> CompiledRun:
    """As `backend.build_jax`, over a mesh."""
    plan, keys = setup.algorithm.plan, key_shapes(setup)
    shared = layout.env_parts > 1

    def spread(state: RunState) -> RunState:
        if not shared or not isinstance(state.replay, replays.Replay):
            return state
        return state._replace(replay=jax.vmap(lambda r: replays.spread(r, plan.steps, plan.envs))(state.replay))

    def gathered(state: RunState) -> RunState:
        if not isinstance(state.replay, replays.SpreadReplay):
            return state
        return state._replace(replay=jax.vmap(replays.gathered)(state.replay))

    template = jax.eval_shape(jax.vmap(one.init), keys)
    rows = jax.eval_shape(spread, template)
    whole, by_seed, by_env = layout.sharding(), layout.sharding(SEED), layout.sharding(SEED, AXIS)

    def shardings(state: RunState) -> RunState:
        """Of a state of all seeds: each device has its seeds, and its environments' part of what belongs to those."""
        lies = jax.tree.map(lambda _: by_seed, state)
        if not shared:
            return lies
        lies = lies._replace(
            **{name: jax.tree.map(lambda _: by_env, getattr(state, name)) for name in ("actors", "episodes")}
        )
        if isinstance(state.replay, replays.SpreadReplay):
            stored = layout.sharding(SEED, None, None, AXIS)
            data: Any = jax.tree.map(lambda _: stored, state.replay.data)
            lies = lies._replace(replay=state.replay._replace(data=data, size=cast(Any, by_seed)))
        return lies

    lies, measures = shardings(rows), whole if jax.process_count() > 1 else by_seed  # every host reads them

    def over_seeds(function: Callable[..., Any], *axes: int | None) -> Callable[..., Any]:
        """vmap over the seeds of each device."""
        specs = tuple(P() if axis is None else P(SEED) for axis in axes)
        names = {SEED} if shared else {SEED, AXIS}
        mapped = jax.vmap(function, in_axes=axes)
        return jax.shard_map(
            mapped, mesh=layout.mesh, in_specs=specs, out_specs=P(SEED), axis_names=names, check_vma=False
        )

    first = jax.jit(lambda keys: spread(over_seeds(one.init, 0)(keys)), out_shardings=lies)
    step = jax.jit(over_seeds(one.round, 0, None), donate_argnums=0, out_shardings=(lies, measures))
    laid = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), rows, lies)
    compiled = step.lower(laid, jax.ShapeDtypeStruct((), jnp.int32, sharding=whole)).compile()
    check_program(compiled)
    prepare = None
    if setup.settings.warm_start is not None:
        prepare = jax.jit(over_seeds(warm_start(setup), 0, 0), out_shardings=(lies, measures))
    bring = jax.jit(lambda state: gathered(state), out_shardings=whole)

    def init(keys: Any) -> tuple[RunState, dict[str, Any]]:
        keys = place(keys, by_seed)
        state = first(keys)
        return (state, {}) if prepare is None else prepare(state, keys)

    def round_(state: RunState, index: Any) -> tuple[RunState, dict[str, Any]]:
        return compiled(state, place(np.int32(index), whole))

    def to_devices(state: RunState) -> RunState:
        state = spread(state)
        return place(state, shardings(state))

    def to_here(state: RunState) -> RunState:
        return jax.tree.map(lambda x: x.addressable_data(0), bring(state))

    return CompiledRun(init, round_, template, program=compiled, to_devices=to_devices, to_here=to_here)
