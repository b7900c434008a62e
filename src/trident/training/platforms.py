"""Which kind of device a process computes on."""

from __future__ import annotations

from typing import Literal

import jax

from trident.errors import TridentError

Platform = Literal["cpu", "gpu", "tpu"]


def ask_for(name: str | None) -> None:
    """Before JAX has looked at the hardware. On its own it takes the fastest kind that it finds: a GPU or TPU is not
    asked for by its name, of which there are several."""
    if name is not None:
        jax.config.update("jax_platforms", "cpu" if name == "cpu" else "")


def check(name: str | None) -> None:
    """A TridentError if what was asked for is not there."""
    if name is None:
        return
    try:
        found = jax.default_backend()
    except RuntimeError as error:
        raise TridentError(f"--platform {name}: {' '.join(str(error).split())[:200]}") from error
    if found != name:
        raise TridentError(
            f"--platform {name}: JAX finds only {found} devices here (it needs the {name}'s driver and JAX's plug-in)"
        )
