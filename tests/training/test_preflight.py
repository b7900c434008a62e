"""Environments from elsewhere are checked before training, once; what their own code raises keeps its place."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import pytest
from support import tiny
from support.simulators import Tanks

from trident import api
from trident.errors import TridentError
from trident.report.progress import Silent
from trident.training import preflight, session
from trident.training.settings import Settings, make_setup


class Negative(tiny.TinyEnv):
    def step(self, key, state, action):
        after, out = super().step(key, state, action)
        return after, out._replace(cost=out.cost - 5.0)


class Watch(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def doing(self, text: str) -> None:
        self.said.append(text)


def check(env, **settings) -> list[str]:
    watch = Watch()
    preflight.check(make_setup(env, "tiny", Settings(episodes=4, seeds=1, **settings)), watch)
    return watch.said


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_fault_is_named_before_anything_is_compiled_or_written(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "build", lambda *_: pytest.fail("compiled"))
    with pytest.raises(TridentError, match=r"tiny breaks the environment contract: cost 'use' is negative") as error:
        api.train(Negative(), "tiny", episodes=4, seeds=1, out=tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_good_one_is_checked_once_until_it_changes():
    assert check(tiny.TinyEnv()) == ["checking tiny (--no-check-env leaves it out)"]
    assert check(tiny.TinyEnv()) == []
    assert len(check(tiny.TinyEnv(spec=replace(tiny.SPEC, horizon=7)))) == 1


def test_the_check_can_be_left_out_and_tridents_own_are_not_checked():
    assert check(Negative(), check_env=False) == []
    watch = Watch()
    preflight.check(make_setup("probe-mode", "mappo", Settings()), watch)
    assert watch.said == []


def test_a_simulators_own_error_keeps_its_file_and_line():
    class Broken(Tanks):
        def step(self, action):
            raise KeyError("valve")

    with pytest.raises(TridentError, match=r"KeyError: 'valve'; .*test_preflight.py, line \d+, in step"):
        check(Broken())


def test_an_observation_that_is_not_finite_is_found():
    class Lost(tiny.TinyEnv):
        def _look(self, state, *rest):
            out = super()._look(state, *rest)
            return out._replace(obs=jnp.where(state.t == 3, jnp.nan, out.obs))

    with pytest.raises(TridentError, match="obs is not finite after step 3"):
        check(Lost())
