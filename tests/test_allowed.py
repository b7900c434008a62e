"""Every setting says what it may be, and whatever is not so is one line before anything is written."""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trident.cli
from trident import allowed
from trident.allowed import Count, Length, Name, Range, Share, Widths
from trident.errors import TridentError
from trident.fields import change, flatten
from trident.run_directory import read_run
from trident.training.registry import ALGORITHMS, ScriptedConfig, make_env
from trident.training.settings import Settings, make_setup

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Group:
    share: Share = 0.5
    each: Share | Annotated[tuple[Share, ...], Length(1, 2)] = 0.5


@dataclass(frozen=True)
class Config:
    count: Count = 4
    widths: Widths = (8,)
    form: Literal["a", "b"] = "a"
    on: bool = False
    name: Name | None = None
    limit: dict[Name, Share] = dataclasses.field(default_factory=dict)
    rate: Annotated[float, Range(above=0.0, most=1.0, usual=(0.1, 1.0))] = 0.5
    group: Group = Group()

    def faults(self):
        if self.count > 8 * len(self.widths):
            yield "--count must be at most eight for each of --widths"


WRONG = [
    ({"count": 0}, "--count must be at least 1 and at most 1,048,576, not 0"),
    ({"count": 10**400}, "--count must be at least 1"),
    ({"count": True}, "--count must be a whole number at least 1 and at most 1,048,576, not True"),
    ({"count": 1.0}, "--count must be a whole number"),
    ({"count": None}, "--count must be a whole number"),
    ({"count": 9}, "--count must be at most eight for each of --widths"),
    ({"widths": ()}, "--widths must be 1 to 16 of them"),
    ({"widths": (8, 0)}, "--widths must be a list of entries at least 1"),
    ({"widths": 8}, "--widths must be a list"),
    ({"form": "c"}, "--form must be one of a, b, not 'c'"),
    ({"on": 1}, "--on must be true or false, not 1"),
    ({"name": "two\nlines"}, "--name must be printable, of one line"),
    ({"name": 3}, "--name must be a text"),
    ({"limit": {"x": math.nan}}, "--limit must be names with values a finite number"),
    ({"limit": {1: 0.5}}, "--limit must be names with values a text"),
    ({"limit": 0.5}, "--limit must be a mapping"),
    ({"rate": 0.0}, "--rate must be above 0 and at most 1, not 0.0"),
    ({"rate": math.inf}, "--rate must be a finite number above 0 and at most 1, not inf"),
    ({"rate": 10**400}, "--rate must be a finite number"),
    ({"rate": "0.5"}, "--rate must be a finite number"),
    ({"group": Group(share=2.0)}, "--group.share must be at least 0 and at most 1, not 2.0"),
    ({"group": Group(each=(0.5, 2.0))}, "--group.each must be "),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_is_not_allowed_is_named_with_its_value(changes, message):
    with pytest.raises(TridentError) as error:
        allowed.checked(Config(**changes))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_what_is_allowed_stays_as_it_is_and_numbers_of_numpy_become_plain():
    config = Config(count=3, widths=(8, 16), rate=1, group=Group(each=(0.5, 1)))
    assert allowed.checked(config) is config
    tidy = allowed.checked(Config(count=np.int64(3), rate=np.float32(0.5), widths=[8, np.int8(9)]))  # pyright: ignore
    assert tidy == Config(count=3, rate=0.5, widths=(8, 9))
    assert [type(x) for x in (tidy.count, tidy.rate, *tidy.widths)] == [int, float, int, int]


def test_what_is_hardly_meant_is_a_warning():
    with pytest.warns(UserWarning, match=r"--rate 0.01 is unusual: most runs want it in \[0.1, 1\]"):
        allowed.checked(Config(rate=0.01))


def test_a_field_that_does_not_say_what_it_may_be_is_found():
    @dataclass(frozen=True)
    class Loose:
        number: float = 1.0
        text: str = ""
        widths: tuple[Count, ...] = ()
        either: Count | str = 1
        fine: Count = 1

    Loose.__annotations__ = {
        "number": float, "text": str, "widths": tuple[Count, ...], "either": Count | str, "fine": Count
    }  # fmt: skip
    assert allowed.undeclared(Loose()) == ["number", "text", "widths", "either"]


def options() -> list[type]:
    """Every dataclass of options of the command line."""
    names = [module.name for module in pkgutil.iter_modules(trident.cli.__path__)]
    modules = [importlib.import_module(f"trident.cli.{name}") for name in names]
    found = [x for module in modules for name, x in vars(module).items() if name.endswith("Options")]
    return list(dict.fromkeys(found))


def test_every_field_of_every_config_says_what_it_may_be():
    configs = {name: preset.config for name, preset in ALGORITHMS.items() if name != "tiny"}
    configs |= {"scripted": ScriptedConfig(), "settings": Settings()}
    assert {name: lost for name, config in configs.items() if (lost := allowed.undeclared(config))} == {}
    assert len(options()) >= 11
    for kind in options():
        required = {f.name: None for f in dataclasses.fields(kind)
                    if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}  # fmt: skip
        assert (kind.__name__, allowed.undeclared(kind(**required))) == (kind.__name__, [])


def test_every_preset_is_allowed_and_usual(recwarn):
    for preset in ALGORITHMS.values():
        assert allowed.checked(preset.config, "--algo.") is preset.config
    assert not recwarn.list


def test_committed_runs_are_allowed():
    """Records of before these ranges can still be loaded."""
    for path in sorted(ROOT.glob("benchmarks/**/run.json")):
        run = read_run(path.parent)
        if run["algo"] in ALGORITHMS:
            config = ALGORITHMS[run["algo"]].config
            known = {name: value for name, value in run["config"].items() if hasattr(config, name)}
            assert not list(allowed.faults(change(config, known), "--algo.")), path


ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers(),
    st.lists(st.one_of(st.integers(), st.floats(), st.text())), st.tuples(), st.just(10**400), st.just(np.nan),
    st.builds(np.float32, st.floats(width=32)), st.builds(np.array, st.lists(st.integers(0, 5))), st.just(object()),
    st.dictionaries(st.one_of(st.text(), st.integers()), st.floats()), st.just({1}), st.just(Path("x")), st.just(int),
)  # fmt: skip


@contextmanager
def suppress_into(lines: list[str]) -> Iterator[None]:
    """Keeps what a TridentError says; any other exception goes on."""
    try:
        yield
    except TridentError as error:
        lines.append(str(error))


@given(st.data())
def test_no_value_of_any_type_is_more_than_one_line(data):
    """Of a config by itself, of settings, and of the mapping that `trident.train(config=...)` takes."""
    env = make_env("probe-constrained")
    algo = data.draw(st.sampled_from(["mappo", "trident", "qmix", "macpo", "madac", "maddpg"]))
    fields = list(vars(Settings()))
    name = data.draw(st.sampled_from(fields))
    value = data.draw(ANY)
    refusals = []
    with suppress_into(refusals):
        make_setup(env, algo, dataclasses.replace(Settings(), **{name: value}))
    name = data.draw(st.sampled_from(list(flatten(ALGORITHMS[algo].config))))
    with suppress_into(refusals):
        make_setup(env, algo, Settings(), {name: value})
    assert not any("\n" in line for line in refusals)
