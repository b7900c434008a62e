"""How long does what one action changes last? The closed form's own answer beside paired rollouts.

python benchmarks/calibration/lasting.py        # a few minutes; writes lasting.json
python benchmarks/calibration/lasting.py --show

On `uav-mec`, after 60 slots of the base policy, the flight of one UAV is disturbed in one slot; then everyone follows
the base policy again, with the same chance events as without the disturbance. The changes of reward and costs are
regressed, through the origin, on what the closed form says of them: of the slot itself (`now`) and of the later ones,
discounted (`later`: the closed form one step on). `fades` is the closed form's own statement: the share of the change
one step on that is left two steps on, if everyone carries on; with it a change one step on is worth gamma / (1 - gamma
fades)."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from trident.envs.uav_mec.env import UavMec
from trident.envs.uav_mec.physics import pack

RECORD = Path(__file__).with_name("lasting.json")
PAIRS, SLOTS, WARM, SPREAD, GAMMA = 3072, 60, 60, 0.15, 0.95


def compare(env: UavMec, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Changes by one disturbance: closed form of the slot, one step on, two steps on [J]; what happened [SLOTS, J]."""
    begin, warm, chance, noise, who = jax.random.split(key, 5)
    physics, follow = env.physics, env.scripted["base_policy"]
    state, _ = jax.lax.scan(
        lambda s, k: (env.step(k, s, follow(k, s))[0], None), env.reset(begin)[0], jax.random.split(warm, WARM)
    )
    plain = follow(noise, state)
    low, high = (jnp.asarray(box[0, 0]) for box in (env.spec.action.low, env.spec.action.high))
    push = SPREAD * 0.5 * (high - low) * jax.random.normal(noise, (3,)) * jnp.array([1.0, 1.0, 0.0])  # flight only
    agent = jax.random.randint(who, (), 0, env.spec.num_agents)
    pushed = plain._replace(params=jnp.clip(plain.params.at[agent].add(push), low, high))

    def closed_form(action):
        here = pack(env.config, state)
        one = physics.predict(here, action)
        two = physics.predict(one, physics.nominal(one))
        return jnp.stack([physics.signals(here, action), *(physics.signals(s, physics.nominal(s)) for s in (one, two))])

    def happens(first):
        def slot(s, inputs):
            k, i = inputs
            action = jax.tree.map(lambda a, b: jnp.where(i == 0, a, b), first, follow(k, s))
            s, out = env.step(k, s, action)
            return s, jnp.append(out.reward, out.cost)

        return jax.lax.scan(slot, state, (jax.random.split(chance, SLOTS), jnp.arange(SLOTS)))[1]

    now, later, two_on = closed_form(pushed) - closed_form(plain)
    return now, later, two_on, happens(pushed) - happens(plain)


def through_origin(x: np.ndarray, y: np.ndarray) -> list[float]:
    """Slope and its standard error."""
    slope = (x * y).sum() / (x * x).sum()
    return [float(slope), float(np.sqrt(((y - slope * x) ** 2).mean() / (x * x).sum()))]


def measure() -> dict:
    env = UavMec()
    some = jax.jit(jax.vmap(lambda k: compare(env, k)))
    parts = [some(jax.random.split(jax.random.key(i), 512)) for i in range(PAIRS // 512)]
    now, later, two_on, happened = (np.concatenate([np.asarray(p[i], float) for p in parts]) for i in range(4))
    tail = (happened[:, 1:] * GAMMA ** np.arange(1, SLOTS)[:, None]).sum(1)
    record = {"pairs": PAIRS, "slots": SLOTS, "spread": SPREAD, "discount": GAMMA, "jaxlib": version("jaxlib")}
    for j, name in enumerate(("reward", *(c.name for c in env.spec.constraints))):
        fades = through_origin(later[:, j], two_on[:, j])[0]
        record[name] = {
            "slot on now": through_origin(now[:, j], happened[:, 0, j]),
            "tail on later": through_origin(later[:, j], tail[:, j]),
            "fades": fades,
            "worth by fading": GAMMA / (1.0 - GAMMA * min(max(fades, 0.0), 1.0)),
        }
    return record


if __name__ == "__main__":
    if "--show" not in sys.argv:
        RECORD.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    print(RECORD.read_text(encoding="utf-8"))
