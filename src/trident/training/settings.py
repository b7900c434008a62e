"""What a run is: its settings (every default in one place), its setup, and the file run.json that remembers both."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
from tyro.constructors import PrimitiveConstructorSpec

from trident.allowed import Length, Name, Range, Seed, Share, check_value, checked
from trident.envs.checks.shapes import declaration_faults
from trident.envs.randomised import randomised
from trident.errors import TridentError
from trident.fields import change, check_name
from trident.renamed import ALGORITHMS, ENVS, current
from trident.report.loggers import TrackerName
from trident.run_directory import RUN, RUN_SCHEMA, is_run, read_run, write_json
from trident.sealed import read_sealed
from trident.training.names import is_import_string
from trident.training.registry import default_config, has_algorithm, has_env, make_algorithm, make_env, needs_shield
from trident.types import Algorithm, AnyEnv, EnvSpec, mode_names


def parse_limits(words: list[str]) -> dict[str, float]:
    """["energy=0.1", ...] -> {"energy": 0.1, ...}"""
    limits = {}
    for word in words:
        name, equals, value = word.partition("=")
        try:
            limits[name] = float(value)
        except ValueError:
            raise TridentError(f"--limit wants NAME=VALUE, e.g. --limit energy=0.1, not {word!r}") from None
        if not equals:
            raise TridentError(f"--limit wants NAME=VALUE, e.g. --limit energy=0.1, not {word!r}")
    return limits


def parse_env_args(words: list[str]) -> dict[str, Any]:
    """["level=3", "wind=true", "map=hills"] -> {"level": 3, "wind": True, "map": "hills"}"""
    args = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise TridentError(f"--env-arg wants NAME=VALUE, e.g. --env-arg level=3, not {word!r}")
        try:
            args[name] = json.loads(value.lower() if value in ("True", "False") else value)
        except ValueError:
            args[name] = value
    return args


_ENV_ARGS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="NAME=VALUE",
    instance_from_str=parse_env_args,
    is_instance=lambda x: isinstance(x, dict),
    str_from_instance=lambda args: [f"{k}={json.dumps(v)}" for k, v in args.items()],
)
EnvArg = bool | Annotated[float, Range(-1e300, 1e300)] | Name

EnvArgs = Annotated[dict[Name, EnvArg], _ENV_ARGS]


def parse_widths(words: list[str]) -> dict[str, float]:
    """["wind=0.1,mass=0.2"] -> {"wind": 0.1, "mass": 0.2}"""
    widths = {}
    for word in filter(None, ",".join(words).split(",")):
        name, _, value = word.partition("=")
        try:
            widths[name.strip()] = float(value)
        except ValueError:
            raise TridentError(f"--randomise wants NAME=SHARE, e.g. --randomise mass=0.1, not {word!r}") from None
    return widths


_WIDTHS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="NAME=SHARE,...",
    instance_from_str=parse_widths,
    is_instance=lambda x: isinstance(x, dict),
    str_from_instance=lambda widths: [f"{k}={v:g}" for k, v in widths.items()],
)
Widths = Annotated[dict[Name, Share], _WIDTHS]

_LIMITS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="NAME=VALUE",
    instance_from_str=parse_limits,
    is_instance=lambda x: isinstance(x, dict),
    str_from_instance=lambda limits: [f"{k}={v:g}" for k, v in limits.items()],
)


def parse_seeds(words: list[str]) -> int | tuple[int, ...]:
    """["3"] -> three seeds; ["4,7"] -> the seeds 4 and 7; ["4,"] -> seed 4."""
    try:
        numbers = tuple(int(n) for n in words[0].removesuffix(",").split(","))
    except ValueError:
        raise TridentError(f"--seeds wants a number of seeds or a list like 4,7, not {words[0]!r}") from None
    return numbers if "," in words[0] else numbers[0]


_SEEDS = PrimitiveConstructorSpec(
    nargs=1,
    metavar="N|I,J,...",
    instance_from_str=parse_seeds,
    is_instance=lambda x: isinstance(x, int | tuple),
    str_from_instance=lambda seeds: [str(seeds) if isinstance(seeds, int) else ",".join(map(str, seeds))],
)


@dataclass(frozen=True)
class Settings:
    """How a run is done, whatever the algorithm."""

    episodes: Annotated[int, Range(1, 10**12)] = 2000
    """Training episodes per seed; one episode counts as `horizon` environment steps."""
    seeds: Annotated[Annotated[int, Range(1, 2**31 - 1)] | Annotated[tuple[Seed, ...], Length(1, 2**16)], _SEEDS] = 3
    """How many seeds are trained side by side, or which ones."""
    seed: Seed = 0
    """Base of all random streams; those of seed number i depend only on this and i."""
    seeds_apart: bool = False
    """Train seeds one after another within each round, so that each is bit for bit as if trained alone. Side by side
    it is so but for rounding, and faster."""
    devices: Annotated[int, Range(1, 2**20)] | None = None
    """How many devices share the training: first its seeds, then the environments of one seed (one, or with --hosts
    all of them). Results are those of one device, to rounding."""
    limit: Annotated[dict[Name, Annotated[float, Range(0.0, 1e9)]], _LIMITS] = field(default_factory=dict)
    """Other limits than the environment's own, on the mean cost per step."""
    env_arg: EnvArgs = field(default_factory=dict)
    """For an environment by import string: what its class or function is called with."""
    randomise: Widths = field(default_factory=dict)
    """What the simulator may be wrong in, as shares: each episode draws how wrong from [-SHARE, SHARE]."""
    warm_start: Name | None = None
    """Scripted policy the learner is fitted to before the first round."""
    warm_start_rounds: Annotated[int, Range(1, 10**4)] = 4
    """Rounds of scripted data for --warm-start."""
    start_from: Name | None = None
    """Folder of another run of the same algorithm, on the same spaces: go on from what it has learned (fine-tuning)."""
    shielded: bool = False
    """Pass every action through the environment's shield, in training and evaluation."""
    workers: Annotated[int, Range(1, 1024)] | None = None
    """For simulators outside JAX: processes that step their copies (by itself: as many as cores if a step is slow)."""
    eval_episodes: Annotated[int, Range(0, 10**7)] = 200
    """Fresh episodes per seed for the final evaluation."""
    check_env: bool = True
    """Check an environment that is not trident's own before training (shapes, masks, finite numbers, episode ends)."""
    references: bool = True
    """Evaluate the environment's scripted policies as well."""
    video: bool = True
    """Render an episode of the trained policy at the end."""
    trackers: Annotated[tuple[TrackerName, ...], Length(0, 3)] = ()
    """Hand the records on to these as well, a run for each seed (extras of these names)."""
    project: Name = "trident"
    """What trackers file the run under."""
    checkpoint_every: Annotated[float, Range(0.0, 1e9)] = 60.0
    """Seconds between checkpoints."""

    def faults(self) -> Iterator[str]:
        if isinstance(self.seeds, tuple) and len(set(self.seeds)) < len(self.seeds):
            yield "--seeds must be different from each other"

    @property
    def num_seeds(self) -> int:
        return self.seeds if isinstance(self.seeds, int) else len(self.seeds)

    @property
    def seed_list(self) -> tuple[int, ...]:
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else tuple(self.seeds)


class Setup(NamedTuple):
    """Everything needed to train: built from names and settings, or again from a run directory."""

    env: AnyEnv
    spec: EnvSpec  # with this run's limits
    algorithm: Algorithm
    settings: Settings

    def __repr__(self) -> str:
        return f"Setup({self.title}, {self.rounds} rounds)"

    @property
    def title(self) -> str:
        count = self.settings.num_seeds
        return f"{self.algorithm.name} on {self.spec.name}, {count} seed{'s' * (count > 1)}"

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.settings.seed_list

    @property
    def steps_per_round(self) -> int:
        return self.algorithm.plan.envs * self.algorithm.plan.steps

    @property
    def devices(self) -> int:
        return self.settings.devices or (jax.device_count() if jax.process_count() > 1 else 1)

    @property
    def rounds(self) -> int:
        return -(-self.settings.episodes * self.spec.horizon // self.steps_per_round)  # rounded up, exactly


def make_setup(env: str | AnyEnv, algo: str, settings: Settings, config: Any = None) -> Setup:
    """`config` is a config dataclass, a mapping of the fields to change, or None for the preset's own."""
    settings = checked(settings)
    algo = current(check_value("the algorithm", Name, algo), ALGORITHMS)
    if not isinstance(env, str):
        for fault in declaration_faults(env):
            raise TridentError(f"{_printed(env)} breaks the environment contract: {fault}")
    env = current(env, ENVS) if isinstance(env, str) else env
    name = env if isinstance(env, str) else env.spec.name  # a variant may share its spec with the original
    env = make_env(env, settings.env_arg) if isinstance(env, str) else env
    env = randomised(env, settings.randomise)
    for limit in settings.limit:
        check_name("constraint", limit, [c.name for c in env.spec.constraints], name)
    spec = dataclasses.replace(env.spec.with_limits(settings.limit), name=name)
    if config is None or isinstance(config, Mapping):
        config = change(default_config(algo, env, settings.warm_start is not None), config or {}, algo)
    elif not isinstance(config, type(default_config(algo, env))):
        raise TridentError(f"config of {algo} must be a mapping of fields to change, or a whole config of its own kind")
    config = checked(config, "--algo.") if dataclasses.is_dataclass(config) else config
    if needs_shield(algo):
        settings = dataclasses.replace(settings, shielded=True)
    if settings.shielded and env.shield is None:
        wish = f"{algo} needs one" if needs_shield(algo) else "leave out --shielded"
        raise TridentError(f"{spec.name} has no shield: {wish}")
    try:
        algorithm = make_algorithm(algo, env, spec, config)
    except (ValueError, TypeError) as error:
        raise TridentError(f"{algo} cannot be built for {spec.name}: {_one_line(error)}") from error
    if algorithm.plan.envs < 1 or algorithm.plan.steps < 1:
        raise TridentError("--algo.envs and --algo.steps must be at least 1")
    setup = Setup(env, spec, algorithm, settings)
    if setup.rounds >= 2**31:
        raise TridentError(
            f"{settings.episodes:,} episodes of {spec.horizon} steps are {setup.rounds:,} rounds of "
            f"{setup.steps_per_round:,} steps; a run has fewer than 2^31: lower --episodes"
        )
    return setup


def _printed(env: Any) -> str:
    name = getattr(getattr(env, "spec", None), "name", None)
    return name if isinstance(name, str) and name.isprintable() and name else type(env).__name__


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


# --- run.json -------------------------------------------------------------------------------------


def identity(setup: Setup) -> dict[str, Any]:
    """What a checkpoint must agree with. The number of episodes is not part of it: a run may be prolonged."""
    settings = setup.settings
    decides = [_plain_config(setup), settings.seed, settings.shielded, settings.warm_start]
    decides += [settings.warm_start_rounds, setup.spec.limits.tolist()]
    decides += [] if settings.start_from is None else [settings.start_from]
    decides += ["seeds apart"] if settings.seeds_apart else []
    decides += [settings.env_arg] if settings.env_arg else []
    decides += [settings.randomise] if settings.randomise else []
    return {
        "env": setup.spec.name,
        "version": setup.spec.version,
        "env config": _env_config(setup.env),
        "algo": setup.algorithm.name,
        "config hash": _digest(json.dumps(decides, sort_keys=True)),
        "seeds": list(setup.seeds),
        "jax": jax.__version__,
        "cores": cores(),
        "devices": layout_text(setup),
    }


def layout_text(setup: Setup) -> str:
    """Over what a run is spread: how many decides in which order sums are taken."""
    count, hosts = setup.devices, jax.process_count()
    parts = math.gcd(setup.settings.num_seeds, count)
    text = f"{count}" if count == 1 else f"{count} ({parts} for seeds x {count // parts} for environments)"
    return f"{text} on {hosts} hosts" if hosts > 1 else text


def cores() -> int | None:
    """Those that this process may use: how many decides in which order sums are taken."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _env_config(env: AnyEnv) -> str | None:
    """Tells variants apart that share a name; only for environments with a dataclass `config`."""
    config = getattr(env, "config", None)
    return _digest(repr(config)) if dataclasses.is_dataclass(config) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def describe(setup: Setup) -> dict[str, Any]:
    """The content of run.json: enough to repeat the run, and all that reports need to know of its environment."""
    spec, settings = setup.spec, dataclasses.asdict(setup.settings)
    return {
        "env": spec.name,
        "env_version": spec.version,
        "algo": setup.algorithm.name,
        "config": _plain_config(setup),
        "settings": settings | {"seeds": list(setup.seeds), "trackers": list(setup.settings.trackers)},
        "rounds": setup.rounds,
        "steps_per_round": setup.steps_per_round,
        "horizon": spec.horizon,
        "agents": spec.num_agents,
        "modes": mode_names(spec),
        "constraints": [dataclasses.asdict(c) for c in spec.constraints],
        "metrics": [dataclasses.asdict(m) for m in spec.metrics],
        "scripted": list(setup.env.scripted),
        "identity": identity(setup),
        "versions": {
            "trident": sys.modules["trident"].__version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
        },
        "host": {"cores": cores(), "machine": platform.machine(), "device": jax.devices()[0].platform},
        "commit": _commit(),
    }


def write_run(out: Path, setup: Setup) -> dict[str, Any]:
    """What is there already keeps the names it was started under: its records' digests begin with them."""
    run = describe(setup)
    began = read_sealed(out / RUN, RUN_SCHEMA) if is_run(out) else {}
    run["commit"] = commits(began)
    write_json(out / RUN, run | {name: began[name] for name in ("env", "env_version", "algo") if name in began})
    return read_run(out)


def setup_of(out: Path, env: str | AnyEnv | None = None, episodes: int | None = None, trust: bool = False) -> Setup:
    """The setup of an earlier run. What has no name must be handed in again; what is to be imported by its name, from
    outside the package, must be trusted."""
    run = read_run(out)
    if env is None and not has_env(run["env"]):
        raise TridentError(f"{run['env']!r} is not a registered environment: call trident.load(run, env=your_env)")
    if run["algo"] not in run.get("scripted", ()) and not has_algorithm(run["algo"]):
        raise TridentError(f"{run['algo']!r} is not a registered algorithm: call trident.load(run, algo=your_preset)")
    saved = run["settings"] | ({} if episodes is None else {"episodes": episodes})
    known = {f.name for f in dataclasses.fields(Settings)}
    saved["seeds"] = tuple(saved["seeds"])
    settings = Settings(**{k: v for k, v in saved.items() if k in known})
    if env is None and is_import_string(run["env"]):
        env = make_env(run["env"], settings.env_arg, trusted=trust)
    try:
        setup = make_setup(run["env"] if env is None else env, run["algo"], settings, run["config"])
    except TridentError as error:
        writer, reader = run.get("commit"), _commit()
        if writer in (None, reader):
            raise
        raise TridentError(f"{out} was written by commit {writer} of trident, this is {reader}: {error}") from error
    return setup._replace(spec=dataclasses.replace(setup.spec, name=run["env"])) if env is not None else setup


def _plain_config(setup: Setup) -> Any:
    config = setup.algorithm.config
    return dataclasses.asdict(config) if dataclasses.is_dataclass(config) else config  # pyright: ignore[reportArgumentType]


def commits(run: dict[str, Any]) -> str | None:
    """Those that have trained a run so far and this one, which goes on with it."""
    names = [*(run.get("commit") or "").split(", "), _commit() or ""]
    return ", ".join(filter(None, dict.fromkeys(names))) or None


def note_commit(out: Path) -> None:
    """A run that another commit goes on with says so."""
    run = read_sealed(out / RUN, RUN_SCHEMA)
    if commits(run) != run.get("commit"):
        write_json(out / RUN, run | {"commit": commits(run)})


def _commit() -> str | None:
    """The commit of the code that ran, "+" when the work tree had changes; None outside a repository."""
    here = Path(__file__).parent
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()
