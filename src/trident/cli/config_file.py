"""`trident train --config FILE`: what the command line can say, said by a TOML file or by the run.json of a former run.

Names are those of the options; `[config]` has the algorithm's own settings, `[limit]` and `[env_arg]` are tables. What
stands on the command line as well wins.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from trident.errors import TridentError
from trident.fields import check_name
from trident.run_directory import RUN, read_run
from trident.sealed import read_bytes
from trident.training.settings import Settings

SETTINGS = tuple(f.name for f in dataclasses.fields(Settings))
FLAGS, NAMES = ("quick", "page"), ("env", "algo", "out")
NOT_REPEATED = ("trackers", "project")
"""A former run says whom it was told to; that a new one is, too, is for its user to say."""


class Told(NamedTuple):
    file: Path | None = None
    env: str | None = None
    algo: str | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012
    config: dict[str, Any] = {}  # noqa: RUF012
    words: tuple[str, ...] = ()
    """What is left, as options."""

    @property
    def env_arg(self) -> dict[str, Any]:
        return self.settings.get("env_arg", {})


def told_by(argv: list[str]) -> Told:
    """What the file after --config says, if there is one."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option == "--config":
            return read(Path(value if equals else following))
    return Told()


def read(path: Path) -> Told:
    path = path / RUN if path.is_dir() else path
    return _of_run(path) if path.name == RUN else _of_toml(path)


def _of_run(path: Path) -> Told:
    run = read_run(path.parent)
    settings = {k: v for k, v in run["settings"].items() if k in SETTINGS and k not in NOT_REPEATED}
    return Told(path, run["env"], run["algo"], _tupled(settings), run["config"])


def _of_toml(path: Path) -> Told:
    try:
        content = tomllib.loads(read_bytes(path, 2**20).decode())
    except RecursionError:
        raise TridentError(f"{path} is not TOML: it is nested too deeply") from None
    except ValueError as error:  # of the syntax, of bytes that are not UTF-8, of numbers with thousands of digits
        raise TridentError(f"{path} is not TOML: {error}") from error
    content = {name.replace("-", "_"): value for name, value in content.items()}
    for name, value in content.items():
        check_name("option", name, [*NAMES, *FLAGS, "config", *SETTINGS], str(path))
        kind = bool if name in FLAGS else dict if name in ("config", "limit", "env_arg") else str
        if (name in (*NAMES, *FLAGS, "config", "limit", "env_arg")) and not isinstance(value, kind):
            what = {bool: "true or false", dict: f"a table, [{name}]", str: "a text"}[kind]
            raise TridentError(f"{path}: {name} must be {what}, not {value!r}")
    words = [f"--{name}" for name in FLAGS if content.get(name)]
    words += ["--out", content["out"]] if "out" in content else []
    settings = _tupled({k: v for k, v in content.items() if k in SETTINGS})
    return Told(path, content.get("env"), content.get("algo"), settings, content.get("config", {}), tuple(words))


def _tupled(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
