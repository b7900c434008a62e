"""A config and what it is used on, and the schedules that follow from both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.algos.common.kinds import Kinds, kinds_of
from trident.algos.trident.config import Source, TridentConfig
from trident.errors import TridentError
from trident.maths.discrete_gradient import default_estimator
from trident.physics_value import OneStep
from trident.types import BasePolicy, EnvSpec, Physics


class Problem(NamedTuple):
    config: TridentConfig
    spec: EnvSpec
    physics: Physics | None

    @property
    def closed_form(self) -> Physics | None:
        """The physics the critics are built on: none of it, the reward's, or the costs' as well."""
        if self.physics is None or self.config.critic.physics != "residual":
            return None
        physics, signals, bulk = self.physics, self.physics.signals, self.physics.bulk
        if not self.config.critic.cost_physics:
            signals = _reward_only(signals)
            bulk = bulk and replace(bulk, signals=_reward_only(bulk.signals))
        kind = OneStep if self.config.critic.horizon == "one-step" else Physics
        return kind(signals, physics.predict, physics.nominal, bulk=bulk)

    @property
    def base_policy(self) -> BasePolicy | None:
        """What the actors correct."""
        return self.physics.base_policy if self.physics is not None and self.config.actor.base_policy else None

    @property
    def kinds(self) -> Kinds:
        """Which agents share an actor."""
        return kinds_of(self.spec, self.config.actor.share_actors, self.config.actor.agent_id)

    @property
    def source(self) -> Source:
        """Of the reward's direction; a closed form is needed to go by it alone."""
        source = self.config.step.source
        if source == "closed-form" and self.closed_form is None:
            raise TridentError("source closed-form needs an environment with physics, and physics residual")
        return source

    @property
    def estimator(self) -> str:
        """Of the mode's gradient."""
        name = self.config.actor.estimator
        return default_estimator(self.spec.action.num_modes) if name == "auto" else name

    @property
    def num_signals(self) -> int:
        """The reward and the costs."""
        return 1 + self.spec.num_constraints

    @property
    def discounts(self) -> Float[Array, "J"]:
        return self.config.discounts(self.spec)


def _reward_only(signals: Any) -> Any:
    return lambda state, action: signals(state, action).at[..., 1:].set(0.0)


def temperature(config: TridentConfig, fraction: Float[Array, ""], rounds: Any) -> Float[Array, ""]:
    """Of the relaxed modes: geometric over the first 60 % of the run, or, as printed, times 0.9995 per round."""
    start, end = config.actor.tau_start, config.actor.tau_min
    if config.as_printed:
        return jnp.maximum(end, start * 0.9995**rounds)
    done = jnp.minimum(fraction / 0.6, 1.0)
    return start * (end / start) ** done


def trust_region(config: TridentConfig, fraction: Any) -> Any:
    """KL that an agent's policy may move by in a round."""
    return config.step.trust_region * (1.0 - (1.0 - config.step.trust_region_final) * fraction)


def anneal_log_std(config: TridentConfig, actors: Any, fraction: Any) -> Any:
    """Less exploration as the run goes on; about a hundredth per round, far inside the trust region."""
    start, final = config.actor.log_std, config.actor.log_std_final
    bound = start + jnp.minimum(final - start, 0.0) * fraction
    return actors | {"log_std": jnp.minimum(actors["log_std"], bound)}
