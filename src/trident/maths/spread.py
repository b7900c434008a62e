"""Rows over the devices that share the environments of one seed. On one device nothing is traced."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import PartitionSpec

AXIS = "env"
"""Of the mesh (trident.training.layout): devices along it have environments of the same seeds."""


def over_devices(tree: Any, axis: int = 0) -> Any:
    """The same arrays, each device with its part of the rows along `axis`; what cannot be divided stays whole."""
    mesh = jax.sharding.get_abstract_mesh()
    count = 1 if mesh.empty else mesh.shape.get(AXIS, 1)
    if count == 1:
        return tree
    spec = PartitionSpec(*[None] * axis, AXIS)
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, spec) if x.shape[axis] % count == 0 else x, tree)
