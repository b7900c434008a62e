"""TRIDENT's constrained update on a tabular game, with exact advantages: what is left is the update rule itself.

Agent i's surrogates are L_j(pi_i') = sum_s visits(s) sum_a pi'(a | s) A_j(s, a), the agents before it at their new
policies: the first-order change of V_j. `maths.constrained_update` does the rest. Ablations and printed variants differ
in the numbers of a `Style`, so that one compiled program plays many of them side by side, and in the words of a `Rule`;
errors of the estimates can be injected, while what is reported is always the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trident.maths.fisher import fisher_product
from trident.maths.hybrid import HybridDist
from trident.maths.trust_region import UpdateRule, constrained_update
from trident.verify.tabular_game import Game, evaluate, mix


class Style(NamedTuple):
    """How the budget is made and shared, and what happens when it cannot be kept. Yes is 1, no is 0."""

    alpha: Any = 0.2
    """Share of the slack that a round may spend and of the excess that it must give back; 1 is the printed one."""
    shared: Any = 1.0
    """One budget for all agents, instead of the whole of it for each."""
    sequential: Any = 1.0
    """Agents see the new policies of those before them."""
    searched: Any = 0.0
    """The line search tests the true surrogate costs, as TRIDENT's does; otherwise their linearisation, as in the
    theorem: the next round answers for what that overlooks."""
    multiplier_rate: Any = 0.0
    """Above 0: no budget but a Lagrange multiplier that rises and falls at this rate."""


class Rule(NamedTuple):
    """The words of `maths.constrained_update.UpdateRule`."""

    recovery: Literal["natural", "paper", "descent", "none"] = "natural"
    demands: Literal["clipped", "whole"] = "clipped"
    metric: Literal["fisher", "euclidean"] = "fisher"
    """euclidean: the squared length of the step in place of the KL, which is not checked."""


UNIT = 2.0 * 0.01 / 0.2**2
"""Of squared lengths: a trust region of 0.01 is a length of 0.2."""


class Player(NamedTuple):
    style: Style
    rule: Rule = Rule()


PLAYERS: dict[str, Player] = {
    "as analysed": Player(Style()),
    "trident": Player(Style(searched=1.0)),
    "no recovery": Player(Style(searched=1.0), Rule(recovery="none")),
    "no trust region": Player(Style(searched=1.0), Rule(metric="euclidean")),
    "simultaneous": Player(Style(alpha=0.1, shared=0.0, sequential=0.0, searched=1.0)),  # half the budget for each
    "budget d - V": Player(Style(alpha=1.0)),
    "budget per agent": Player(Style(shared=0.0)),
    "lagrangian": Player(Style(multiplier_rate=0.05)),
    "macpo": Player(Style(alpha=1.0, searched=1.0), Rule("descent", "whole")),
}
"""The second row is TRIDENT's update, macpo that of `algos.macpo`; the first leaves out the line search on the true
costs, and the others one thing each."""


class Injection(NamedTuple):
    """Errors added to what the learner estimates."""

    gradient: Float[Array, "N J D"]
    critic: Float[Array, "S A J"]
    shaping: Float[Array, "S A"]  # added to the reward


class Trace(NamedTuple):
    total: Float[Array, "T J"]  # true values of the policy before each round
    kind: Float[Array, "T N"]
    spent: Float[Array, "T K"]  # change of the surrogate costs, all agents together
    budget: Float[Array, "T K"]


def no_injection(agents: int, states: int, modes: int, signals: int = 2) -> Injection:
    actions = modes**agents
    return Injection(
        jnp.zeros((agents, signals, states * modes)),
        jnp.zeros((states, actions, signals)),
        jnp.zeros((states, actions)),
    )


def side_by_side(styles: list[Style]) -> Style:
    return Style(*(jnp.array([float(getattr(s, f)) for s in styles]) for f in Style._fields))


def by_rule(players: Sequence[Player]) -> dict[Rule, list[int]]:
    """Who can be played by one program."""
    groups: dict[Rule, list[int]] = {}
    for i, player in enumerate(players):
        groups.setdefault(player.rule, []).append(i)
    return groups


@partial(jax.jit, static_argnums=(0,))
def play(
    rule: Rule, game: Game, style: Style, start: Float[Array, "N S M"], deltas: Float[Array, "T"], wrong: Injection
) -> tuple[Float[Array, "N S M"], Trace]:
    """As many rounds as there are trust regions."""

    def one_round(carry: Any, delta: Array) -> Any:
        logits, multiplier = carry
        logits, trace = update(rule, game, style, logits, delta, wrong, multiplier)
        excess = trace.total[1:] - game.limits
        return (logits, jnp.maximum(multiplier + style.multiplier_rate * excess, 0.0)), trace

    (logits, _), trace = jax.lax.scan(one_round, (start, jnp.zeros_like(game.limits)), deltas)
    return logits, trace


def update(
    rule: Rule,
    game: Game,
    style: Style,
    logits: Float[Array, "N S M"],
    delta: Any,
    wrong: Injection,
    multiplier: Float[Array, "K"],
) -> tuple[Float[Array, "N S M"], Trace]:
    """One round over all agents."""
    old = jax.nn.softmax(logits, axis=-1)
    truth = evaluate(game, mix(list(old)))
    estimated = game._replace(signals=game.signals.at[..., 0].add(wrong.shaping))
    values = evaluate(estimated, mix(list(old)))
    advantage = values.action - values.state[:, None] + wrong.critic
    budget = -style.alpha * (truth.total[1:] - game.limits)

    def one_agent(carry: Any, row: Any) -> Any:
        pis, spent = carry
        agent, mine, bias = row
        seen = jnp.where(style.sequential > 0, pis, old)
        left = jnp.where(style.shared > 0, budget - spent, budget)
        theta, kind, change = _update_agent(
            rule, style, agent, mine, seen, values.visits, advantage, left, delta, bias, multiplier
        )
        return (pis.at[agent].set(jax.nn.softmax(theta, axis=-1)), spent + change[1:]), (theta, kind)

    rows = (jnp.arange(len(logits)), logits, wrong.gradient)
    (_, spent), (new, kinds) = jax.lax.scan(one_agent, (old, jnp.zeros_like(budget)), rows)
    return new, Trace(truth.total, kinds, spent, budget)


def _update_agent(
    rule: Rule,
    style: Style,
    agent: Array,
    logits: Array,
    pis: Array,
    visits: Array,
    advantage: Array,
    budget: Array,
    delta: Any,
    bias: Array,
    multiplier: Array,
) -> tuple[Array, Array, Array]:
    shape, theta = logits.shape, logits.ravel()

    def value(t: Array) -> Array:
        mine = jax.nn.softmax(t.reshape(shape), axis=-1)
        joint = mix(list(pis.at[agent].set(mine)))
        return jnp.einsum("s,sa,saj->j", visits, joint, advantage) + bias @ t

    now, raw = value(theta), jax.jacrev(value)(theta)
    # with a multiplier the costs enter the reward, and only there
    priced = style.multiplier_rate > 0
    mixing = jnp.eye(len(now))
    mixing = jnp.where(priced, jnp.zeros_like(mixing).at[0].set(jnp.append(1.0, -multiplier)), mixing)
    gradients, budget = mixing @ raw, jnp.where(priced, 1e9, budget)

    def surrogates(t: Array) -> Array:
        true, linear = mixing @ (value(t) - now), gradients @ (t - theta)
        return jnp.where((style.searched > 0) | (jnp.arange(len(now)) == 0), true, linear)

    def dist(t):
        return HybridDist(t.reshape(shape), jnp.zeros((*shape, 0), t.dtype), jnp.zeros((*shape, 0), t.dtype))

    mask, used, weight = jnp.ones(shape, bool), jnp.ones((shape[1], 0), bool), visits / jnp.sum(visits)
    words = UpdateRule(delta=delta, cg_steps=20, damping=1e-4, recovery=rule.recovery, demands=rule.demands)
    product = fisher_product(dist, theta, mask, used, weight)
    if rule.metric == "euclidean":
        product, words = lambda v: UNIT * v, words._replace(slack=float("inf"))
    new, info = constrained_update(words, theta, gradients, surrogates, product, dist, mask, used, weight, budget)
    return new.reshape(shape), info.kind, value(new) - now
