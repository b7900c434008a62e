"""How far limits hold in simulators that are wrong, and what they are tightened to for that."""

from __future__ import annotations

import copy
import json
import re
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import tiny

import trident
from trident.envs.randomised import Erring, Randomised, Uncertain, as_thought, randomised, uncertain_of
from trident.errors import TridentError
from trident.export import sim_to_real as margins
from trident.export.bundle import Choices, export
from trident.report.progress import Silent
from trident.training.settings import parse_widths


class Drifting(tiny.TinyEnv):
    """Tiny, but what is noisy may be noisier: cost `noise` is 0.5 (1 + gain) + |drift|, whatever anybody does."""

    uncertain: ClassVar = {"gain": Uncertain("noise"), "drift": Uncertain("more of it", size=2)}
    errors: ClassVar = {}

    def varied(self, errors):
        other = copy.copy(self)
        object.__setattr__(other, "errors", errors)
        return other

    def step(self, key, state, action):
        after, out = super().step(key, state, action)
        gain = self.errors["gain"][0] if "gain" in self.errors else 0.0
        drift = jnp.abs(self.errors["drift"]).sum() if "drift" in self.errors else 0.0
        return after, out._replace(cost=jnp.stack([0.0 * out.cost[0], 0.5 * (1.0 + gain) + drift]))


def test_widths_as_they_are_typed():
    assert parse_widths(["wind=0.1,mass=0.2", "channel=0"]) == {"wind": 0.1, "mass": 0.2, "channel": 0.0}
    with pytest.raises(TridentError, match="wants NAME=SHARE"):
        parse_widths(["wind"])
    with pytest.raises(TridentError, match="did you mean 'gain'"):
        randomised(Drifting(), {"gian": 0.1})
    with pytest.raises(TridentError, match="does not say what it is uncertain of"):
        randomised(tiny.TinyEnv(), {"mass": 0.1})
    with pytest.raises(TridentError, match="does not say what it is uncertain of: there is nothing"):
        quick(tiny.TinyEnv(), "none", randomise={})


def test_every_episode_draws_its_own_errors_and_keeps_them():
    env = randomised(Drifting(), {"gain": 0.2, "drift": 0.1})
    assert isinstance(env, Randomised)
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 400))
    gain, drift = np.asarray(state.errors["gain"]), np.asarray(state.errors["drift"])
    assert (gain.shape, drift.shape) == ((400, 1), (400, 2))
    assert (np.abs(gain).max(), np.abs(drift).max()) < (0.2, 0.1)
    assert np.abs(gain).max() > 0.19
    assert abs(gain.mean()) < 0.02
    one = jax.tree.map(lambda x: x[0], state)
    after, out = env.step(jax.random.key(1), one, tiny._action(jnp.ones(2), jnp.ones(2)))
    assert after.errors["gain"] == one.errors["gain"]
    assert out.cost[1] == pytest.approx(0.5 * (1 + gain[0, 0]) + np.abs(drift[0]).sum(), rel=1e-5)
    assert as_thought(env) is env.env
    assert uncertain_of(env.env) == Drifting.uncertain
    assert randomised(env, {}) is env.env


def quick(env, name, tmp=None, **settings):
    if tmp is None:
        from trident.training.settings import Settings, make_setup

        setup = make_setup(env, "tiny", Settings(**settings))
        return margins.sim_to_real(type("R", (), {"setup": setup})(), 2)  # pyright: ignore[reportArgumentType]
    silent = {"references": False, "video": False, "progress": Silent(), "check_env": False}
    return trident.train(env, "tiny", episodes=4, seeds=1, out=tmp / name, eval_episodes=2, **silent, **settings)


def test_the_table_says_how_far_limits_hold_and_the_bundle_carries_it(tmp_path):
    env = Drifting(spec=tiny.SPEC.with_limits({"noise": 0.56}))
    run = quick(env, "run", tmp_path, randomise={"gain": 0.1})
    assert isinstance(run.setup.env, Randomised)
    found = margins.sim_to_real(run, 3)
    noise = {(row["what"], row["wrong by"]): row["cost"][1] for row in found["rows"]}
    assert noise["nothing", 0.0] == pytest.approx(0.5)
    assert noise["gain", 0.2] == pytest.approx(0.6)
    assert noise["drift", 0.1] == pytest.approx(0.6)
    assert noise["all", 0.05] == pytest.approx(0.575)
    assert found["holds to"] == 0.0
    assert found["tighten"] == 0.7, "0.15 of 0.56 is to be left over; the share is a multiple of 0.05"
    text = margins.table(found)
    assert re.search(r"all +20 %.* OVER", text)
    assert text.endswith("For 10 %: train to 0.7 of the limits (--algo.tighten 0.7).")
    assert json.loads((run.out / margins.FILE).read_text())["tighten"] == 0.7
    manifest = export(run, tmp_path / "b", Choices(observations=20))
    assert manifest["sim to real"]["tighten"] == 0.7
    assert "train to 0.7 of the limits" in (tmp_path / "b" / "card.md").read_text()
    (run.out / margins.FILE).write_text("{")
    with pytest.raises(TridentError, match="is damaged: it is not JSON; ask again"):
        export(run, tmp_path / "c", Choices(observations=20))
    again = trident.load(run.out, env=env)
    assert again.setup.settings.randomise == {"gain": 0.1}
    assert isinstance(again.setup.env, Randomised)
    assert isinstance(jax.eval_shape(again.setup.env.reset, jax.random.key(0))[0], Erring)
    assert not isinstance(again.randomised({}).setup.env, Randomised)


@pytest.mark.parametrize(("here", "there", "now", "wanted"), [
    ([0.1, 0.2], [0.3, 0.9], 0.5, 0.5),  # kept as it is
    ([0.1, 0.2], [0.3, 1.2], 1.0, 0.0),  # more is lost than there is
    ([0.1, 0.9], [0.3, 1.2], 1.0, 0.7),
    ([0.1, 0.9], [0.3, 1.2], 0.5, 0.5),  # tighter already, though it does not hold: more tightening is not the answer
    ([0.9, 0.9], [1.36, 1.2], 1.0, 0.5),  # the worst of them, rounded down
])  # fmt: skip
def test_tightening_leaves_room_for_what_costs_rise_by(here, there, now, wanted):
    found = margins.tightened(np.array(here), np.array(there), np.ones(2), now)
    assert found == (wanted or None)


def test_a_direction_is_the_one_that_costs_most():
    known = Drifting.uncertain
    alone = [(name, e, np.array([e["gain"][0] - e["drift"][1], 0.0])) for name, e in margins.directions(known)]
    worst = margins.together(alone, 0, known)
    assert (worst["gain"].tolist(), worst["drift"].tolist()) == ([1.0], [0.0, -1.0])
