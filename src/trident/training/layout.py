"""Which devices a run is spread over: first its seeds, then the environments of one seed.

D devices are a mesh (seed, env). Seeds have nothing to say to each other, so as many devices as divide them are taken
for seeds; what is left over shares the environments of each. One device is no layout at all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from trident.errors import TridentError
from trident.maths.spread import AXIS
from trident.training.settings import Setup
from trident.types import HostEnv

SEED = "seed"
VIRTUAL = "XLA_FLAGS=--xla_force_host_platform_device_count={count} makes virtual ones of a CPU's cores"


class Layout(NamedTuple):
    mesh: Mesh

    @property
    def seed_parts(self) -> int:
        return self.mesh.shape[SEED]

    @property
    def env_parts(self) -> int:
        return self.mesh.shape[AXIS]

    def sharding(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))


def layout_of(setup: Setup) -> Layout | None:
    """None: one device. A TridentError if there are too few devices, or they cannot share the run."""
    count = setup.devices
    if count == 1:
        return None
    if isinstance(setup.env, HostEnv):
        raise TridentError(f"{setup.spec.name} runs outside JAX, on one device: leave out --devices and --hosts")
    if setup.settings.seeds_apart:
        raise TridentError("--seeds-apart trains one seed after another on one device: leave out --devices and --hosts")
    available = jax.devices()
    if count > len(available):
        kind, there = available[0].platform, len(available)
        hint = f": {VIRTUAL.format(count=count)}" if kind == "cpu" else ""
        raise TridentError(f"--devices {count}, but there {_are(there, f'{kind} device')}{hint}; --devices 1 takes one")
    if jax.process_count() > 1 and count != len(available):
        raise TridentError(f"with --hosts a run takes all {len(available)} devices: leave out --devices")
    seeds, envs = setup.settings.num_seeds, setup.algorithm.plan.envs
    parts = math.gcd(seeds, count)
    if envs % (count // parts):
        raise TridentError(
            f"{count} devices cannot share {_count(seeds, 'seed')} of {_count(envs, 'environment')}: take "
            f"{' or '.join(map(str, fitting(seeds, envs, count)))}, or another number of --seeds or --algo.envs"
        )
    mesh = np.array(available[:count]).reshape(parts, count // parts)
    return Layout(Mesh(mesh, (SEED, AXIS), axis_types=(AxisType.Auto,) * 2))


def fitting(seeds: int, envs: int, most: int) -> list[int]:
    """Numbers of devices below `most` that can share a run."""
    return [n for n in range(1, most) if envs % (n // math.gcd(seeds, n)) == 0]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"


def _are(number: int, what: str) -> str:
    return f"{'is' if number == 1 else 'are'} {_count(number, what)}"


def place(tree: Any, shardings: Any) -> Any:
    """Arrays that every host has as they lie on the devices; keys included."""

    def one(x: Any, sharding: NamedSharding) -> Any:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            words = one(jax.random.key_data(x), sharding)
            return jax.jit(lambda w: jax.random.wrap_key_data(w, impl=jax.random.key_impl(x)))(words)
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])

    return jax.tree.map(one, tree, shardings)
