"""The library's front door: `train` and `load` give a `Run`, which acts, evaluates and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from trident.allowed import Range, Seed, check_value
from trident.envs.randomised import as_thought
from trident.errors import TridentError
from trident.fields import check_name
from trident.renamed import former_env
from trident.report import records as recording
from trident.report.broken_limits import broken_limits
from trident.report.compare import compare_table, label, load_runs
from trident.report.compare import references as references_of
from trident.report.loggers import Followers
from trident.report.progress import Progress, Silent, progress_for
from trident.report.safety import improvement_table, safety_table
from trident.report.tables import result_table
from trident.run_directory import FIGURES, RECORDS, RESULT, own_folder, read_result, read_run, write_json
from trident.simulation import watching
from trident.simulation.acting import checked_view, rest_the_dead
from trident.training import hosts, preflight, session, showing, zoo
from trident.training.backend import AnyPolicy, backend_of
from trident.training.evaluation import assess_run
from trident.training.fine_tune import check_fit
from trident.training.interrupt import leaving
from trident.training.loop import RunState
from trident.training.presets import Preset
from trident.training.registry import ALGORITHMS, add_algorithm
from trident.training.settings import Settings, Setup, describe, make_setup, mode_names, setup_of
from trident.training.warm_start import check_warm_start
from trident.types import AnyEnv, EnvSpec, HybridAction, View


def default_algorithm() -> str:
    return next((name for name in ("trident", "happo") if name in ALGORITHMS), "random")


def train(
    env: str | AnyEnv = "uav-mec",
    algo: str | Preset | None = None,
    *,
    episodes: int | None = None,
    seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    limits: Mapping[str, float] | None = None,
    env_args: Mapping[str, Any] | None = None,
    config: Any = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Run:
    """Train and evaluate; everything is kept in the run directory `out`.

    `env` and `algo` are names, or an environment and a `Preset` of one's own (which `load` must be handed again). A
    name may say where to import an environment from, "my_pkg.tanks:Tanks", and `env_args` with what to call it.
    `config` changes fields of the algorithm's config: a mapping, or a whole config dataclass. Further keywords
    are those of `trident.training.settings.Settings`, e.g. `shielded=True`, `warm_start="greedy"`.
    """
    for name in settings:
        check_name("setting", name, [f.name for f in fields(Settings)], "trident.train")
    given = {
        "episodes": episodes,
        "seeds": tuple(seeds) if isinstance(seeds, Sequence) else seeds,
        "limit": _mapping("limits", limits),
        "env_arg": _mapping("env_args", env_args),
    }
    options = replace(Settings(), **{k: v for k, v in given.items() if v is not None}, **settings)
    if isinstance(options.env_arg, Mapping) and options.env_arg and not isinstance(env, str):
        raise TridentError("env_args are for an environment that is made by its name, not for one that is there")
    _check_place(out, progress)
    name = add_algorithm(algo) if isinstance(algo, Preset) else default_algorithm() if algo is None else algo
    setup = make_setup(env, name, options, config)
    return start(setup, out, progress)


def _mapping(name: str, value: Any) -> dict[Any, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise TridentError(f"{name} must be a mapping from names to values, not {value!r}")
    return None if value is None else dict(value)


def _check_place(out: Any, progress: Any) -> None:
    if not (out is None or (isinstance(out, str | Path) and str(out) and str(out).isprintable())):
        raise TridentError(f"out must be the path of a folder, not {out!r}")
    if progress is not None and not all(
        callable(getattr(progress, name, None)) for name in vars(Silent) if "_" not in name
    ):
        raise TridentError(
            f"progress must have the methods of trident.report.progress.Progress, which {progress!r} lacks"
        )


def _folder(run: Any) -> Path:
    if not isinstance(run, str | Path):
        raise TridentError(f"a run is named by the path of its folder, not by {run!r}")
    return Path(run)


def start(setup: Setup, out: str | Path | None = None, progress: Progress | None = None) -> Run:
    """Train what `make_setup` built."""
    progress = progress or _usual_progress()
    if setup.settings.warm_start is not None:
        check_warm_start(setup)  # a name mistyped is said before anything takes time
    preflight.check(setup, progress)
    return _finish(session.train(setup, None if out is None else Path(out), progress), progress)


def resume(
    run: str | Path,
    env: AnyEnv | None = None,
    episodes: int | None = None,
    progress: Progress | None = None,
    algo: Preset | None = None,
    trust: bool = False,
    devices: int | None = None,
) -> Run:
    """Go on with an interrupted run, or prolong a finished one to `episodes`, on as many `devices` as before unless
    told; the others as in `load`."""
    if algo is not None:
        add_algorithm(algo)
    progress = progress or _usual_progress()
    _check_place(None, progress)
    if episodes is not None:
        episodes = check_value("episodes", Annotated[int, Range(1, 10**12)], episodes)
    if devices is not None:
        devices = check_value("devices", Annotated[int, Range(1, 2**20)], devices)
    return _finish(session.resume(_folder(run), env, episodes, progress, trust, devices), progress)


def load(run: str | Path, env: AnyEnv | None = None, algo: Preset | None = None, trust: bool = False) -> Run:
    """A run from its directory, or a policy that comes with the package ("zoo:uav-mec/trident"). `env` and `algo` are
    needed only if they have no name. `trust`: import the environment from the module that the run names, which is to
    run its code."""
    if zoo.is_entry(run):
        return _from_zoo(zoo.folder_of(str(run)))
    if algo is not None:
        add_algorithm(algo)
    folder = _folder(run)
    setup = setup_of(folder, env, trust=trust)
    state, rounds, notes = session.load_state(setup, folder)
    if (former := former_env(read_run(folder))) is not None:
        notes = [f"{folder}: {former}", *notes]
    return Run(setup, folder, state, rounds, None, tuple(notes))


def _from_zoo(folder: Path) -> Run:
    """It acts and is evaluated; nothing is written into its folder, and it does not learn on."""
    setup, algo = zoo.load_entry(folder)
    state = RunState(algo, None, None, None, None, None)  # pyright: ignore[reportArgumentType]
    return Run(setup, folder, state, setup.rounds)


def compare(
    *runs: Run | str | Path, style: str = "plain", figure: str | Path | None = None, mixed: bool = False
) -> str:
    """A table of finished runs on one environment, its scripted policies first; `figure`: draw their curves there.
    Below it how safe single episodes were, and how surely one run is better than the others. Runs with different cost
    specifications are refused unless `mixed`."""
    folders = [run.out if isinstance(run, Run) else _folder(run) for run in runs]
    if figure is not None:
        from trident.report.figures import draw_comparison  # matplotlib takes a second to import

        loaded = load_runs(folders)
        beside = references_of([result for _, result, _ in loaded], {run["algo"] for run, _, _ in loaded})
        curves = [(label(run, folder), run, rows) for folder, (run, _, rows) in zip(folders, loaded, strict=True)]
        draw_comparison(curves, Path(figure), beside=beside)
    tables = [compare_table(folders, style, mixed), safety_table(folders, style), improvement_table(folders, style)]
    return "\n\n".join(filter(None, tables))


def _usual_progress() -> Progress:
    return progress_for() if hosts.first() else Silent()


def _finish(outcome: session.Outcome, progress: Progress) -> Run:
    run = Run(outcome.setup, outcome.out, outcome.state, outcome.rounds, outcome.stopped_by)
    hosts.part()
    if run.stopped_by is None and hosts.first():
        text = f"stopped; training is done and nothing of it was lost. For the rest: trident resume {run.out}"
        with leaving(progress, text):
            try:
                _conclude(run, progress)
            finally:
                progress.end()
    return run


def _conclude(run: Run, progress: Progress) -> None:
    from trident.report.figures import draw_figures  # matplotlib takes a second to import
    from trident.report.scene_figure import can_be_drawn

    settings = run.setup.settings
    if episodes := settings.eval_episodes:
        run.evaluate(episodes, references=settings.references, write=True, progress=progress)
        Followers(run.out, settings.trackers, settings.project, progress.say).close()  # they send it on
    for line in broken_limits(run.info, recording.read(run.out / RECORDS)):
        progress.say(line)
    progress.doing("drawing figures")
    draw_figures(run.out)
    if settings.video and can_be_drawn(run.setup.env):
        progress.doing("making a video of one episode (--no-video leaves it out)")
        run.render()


def scripted_policy(env: AnyEnv, name: str) -> AnyPolicy:
    return backend_of(env).scripted(env, name)


def render(
    env: AnyEnv,
    policy: AnyPolicy,
    folder: Path,
    title: str,
    *,
    steps: int | None = None,
    seed: int = 0,
    shielded: bool = False,
    spec: EnvSpec | None = None,
    figure: bool = False,
    mp4: bool = False,
) -> list[Path]:
    """Play an episode; a chart of it, a video, and its last frame as PNG and SVG.

    The picture is the environment's `scene(states)` (see `trident.report.scene`), or its `draw(figure, states, t)`,
    which paints step t on an empty matplotlib figure, or one that fits all environments. `states` are the private
    states of the whole episode [T + 1, ...] as NumPy arrays. A drawing that takes `changed` is also told which actions
    [T, N] the shield altered.

    With `figure` it is drawn for print instead, as PDF, SVG and PNG: by the environment's `figure(figure, states)` if
    it has one, else as four snapshots. With `mp4` the video is also written as MP4 (needs ffmpeg).
    """
    from trident.report import video  # matplotlib takes a second to import
    from trident.report.scene_figure import draw_scene

    if mp4:
        video.check_ffmpeg()
    session.enable_compilation_cache()
    key = jax.random.fold_in(jax.random.key(seed), showing.STREAM)
    episode = backend_of(env).play(env, policy, key, steps, shielded)
    spec, out = spec or env.spec, episode.steps
    folder.mkdir(parents=True, exist_ok=True)
    length = len(out.reward)
    draw = None if hasattr(env, "scene") else getattr(env, "draw", None)
    if draw is None:
        scene = watching.scene_of(env, episode)
        frame = lambda figure, t: draw_scene(scene, figure, t)  # noqa: E731
    else:
        told = watching.told(draw, episode)
        frame = lambda figure, t: draw(figure, episode.states, t, **told)  # noqa: E731
    if figure:
        own: Any = getattr(env, "figure", None)
        snapshots = partial(video.draw_snapshots, draw=frame, last=length)
        whole = snapshots if own is None else lambda f: own(f, episode.states, **watching.told(own, episode))
        return video.write_figure(folder / "figure", whole)
    costs = {c.name: out.cost[:, k] for k, c in enumerate(spec.constraints)}
    limits = {c.name: c.limit for c in spec.constraints}
    files = [folder / "episode.png"]
    video.write_chart(files[0], title, mode_names(spec), episode.action.mode, np.asarray(out.reward), costs, limits)  # pyright: ignore[reportArgumentType]
    files += [folder / "episode.gif", folder / "last.png", folder / "last.svg"]
    video.write_gif(files[1], frame, length + 1)
    for path in files[2:]:
        video.write_frame(path, frame, length)
    if mp4:
        files.append(video.write_mp4(folder / "episode.mp4", frame, length + 1))
    return files


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A trained (or interrupted) run."""

    setup: Setup
    out: Path
    state: RunState  # [seeds, ...]
    rounds: int
    stopped_by: int | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Run({self.setup.title}, round {self.rounds} of {self.setup.rounds}, {str(self.out)!r})"

    @cached_property
    def info(self) -> dict[str, Any]:
        """The content of run.json."""
        return read_run(self.out)

    @property
    def records(self) -> list[recording.Record]:
        """One record per round; see trident.report.records."""
        return [r for r in recording.read(self.out / RECORDS) if r["round"] <= self.rounds]

    @property
    def diverged(self) -> dict[str, Any]:
        records = self.records
        return records[-1]["diverged"] if records else {}

    @property
    def result(self) -> dict[str, Any] | None:
        """The last evaluation that was kept, if any."""
        return read_result(self.out)

    def on(self, env: str | AnyEnv, env_args: Mapping[str, Any] | None = None) -> Run:
        """The same policies on another environment of the same spaces, e.g. a variant (only to evaluate)."""
        settings = replace(self.setup.settings, limit={}, env_arg=dict(env_args or {}))
        setup = make_setup(env, self.setup.algorithm.name, settings, self.info["config"])
        check_fit(self.setup, self.out, setup)
        run = replace(self, setup=setup)
        run.__dict__["info"] = describe(setup)
        return run

    def randomised(self, widths: Mapping[str, float]) -> Run:
        """The same policies where the simulator is wrong by up to these shares (only to evaluate)."""
        settings = replace(self.setup.settings, randomise=dict(widths))
        setup = make_setup(as_thought(self.setup.env), self.setup.algorithm.name, settings, self.info["config"])
        run = replace(self, setup=setup._replace(spec=replace(setup.spec, name=self.setup.spec.name)))
        run.__dict__["info"] = describe(run.setup)
        return run

    def table(self, style: str = "plain") -> str:
        if self.result is None:
            raise TridentError(f"{self.out} has not been evaluated yet: `trident eval {self.out}`")
        return result_table(self.info, self.result, style)

    def evaluate(
        self,
        episodes: int = 200,
        *,
        deterministic: bool | None = None,
        references: bool = True,
        write: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Every seed's policy and the scripted references on the same fresh episodes; `write` keeps each result as soon
        as it is there. By default policies are stochastic if their algorithm is evaluated so (`Algorithm.sampled`)."""
        session.enable_compilation_cache()
        episodes = check_value("episodes", Annotated[int, Range(1, 10**7)], episodes)
        progress, result = progress or Silent(), {}
        for result in assess_run(
            self.setup, self.state.algo, self.diverged, episodes, deterministic, references, progress
        ):
            if write:
                write_json(self.out / RESULT, recording.plain(result))
            if len(result["policies"]) == 1 and "pending" in result:
                progress.say(f"\n{result_table(self.info, result)}\n")
        return result

    def policy(self, seed: int | None = None, deterministic: bool | None = None) -> AnyPolicy:
        """As a function of (key, env state, time step), for rollouts; outside JAX see
        `trident.simulation.host.HostPolicy`. By default it is stochastic if its algorithm is evaluated so."""
        row, env, algorithm = self.row(seed), self.setup.env, self.setup.algorithm
        deterministic = not algorithm.sampled if deterministic is None else deterministic
        state = jax.tree.map(lambda x: x[row], self.state.algo)
        return backend_of(env).policy_of(env, algorithm, deterministic)(state)

    def replay(self, beside: str | None = None, seed: int = 0, most: int = showing.MOST_BYTES) -> dict[str, Any]:
        """Episodes of the first good seed's policy as plain data, for the page; `beside`: a scripted policy on the
        same; `most`: bytes that they may take."""
        session.enable_compilation_cache()
        state = jax.tree.map(lambda x: x[self.row()], self.state.algo)
        return showing.replay(self.setup, state, not self.setup.algorithm.sampled, beside, seed, most)

    def render(
        self,
        folder: Path | None = None,
        steps: int | None = None,
        seed: int = 0,
        *,
        figure: bool = False,
        mp4: bool = False,
    ) -> list[Path]:
        """A chart of one episode and, if the environment can be drawn, a video of it."""
        env, spec, algorithm, settings = self.setup
        seed = check_value("seed", Seed, seed)
        steps = None if steps is None else check_value("steps", Annotated[int, Range(1, 10**7)], steps)
        title, folder = f"{algorithm.name} on {spec.name}", folder or own_folder(self.out, FIGURES)
        shielded = settings.shielded
        look: Any = {"figure": figure, "mp4": mp4}
        return render(env, self.policy(), folder, title, steps=steps, seed=seed, shielded=shielded, spec=spec, **look)

    def act(
        self,
        obs: np.ndarray,
        mode_mask: np.ndarray | None = None,
        alive: np.ndarray | None = None,
        key: Any = None,
        deterministic: bool | None = None,
        seed: int | None = None,
        agent: int | None = None,
        env_state: Any = None,
    ) -> HybridAction:
        """Actions for observations [N, O] or [batch, N, O], as NumPy arrays; `seed` chooses whose policy.

        By default all modes are allowed, all agents alive, and the first seed that has not diverged acts. Given a
        `key`, the policy acts as in its evaluations (`Algorithm.sampled`); without one, by its most likely actions.
        `agent`: one agent alone acts on its own observation [O] (and its mask [M]); policies are decentralised. A run
        that was trained behind a shield needs the environment's state for it. What is not finite or of another shape
        is a TridentError; whoever must go on all the same flies behind `trident.runtime.Guard`.
        """
        algorithm, spec, env = self.setup.algorithm, self.setup.spec, self.setup.env
        if algorithm.name in env.scripted:
            raise TridentError(f"{algorithm.name} is scripted: it acts on the environment's state, not on observations")
        if agent is not None:
            return self._act_alone(agent, obs, mode_mask, key, deterministic, seed)
        view = checked_view(spec, obs, mode_mask, alive)
        if self.setup.settings.shielded and env_state is None:
            raise TridentError("this run acts behind its environment's shield: give act(..., env_state=...) for it")
        return self._act_checked(view, key, deterministic, seed, env_state)

    def _act_alone(
        self, agent: int, obs: Any, mode_mask: Any, key: Any, deterministic: bool | None, seed: int | None
    ) -> HybridAction:
        """The team with everybody standing where this agent stands: its own row is right whatever the others see."""
        spec = self.setup.spec
        if not 0 <= agent < spec.num_agents:
            raise TridentError(f"agent must be between 0 and {spec.num_agents - 1}")
        if self.setup.settings.shielded:
            raise TridentError("this run acts behind a shield, which needs the whole team: leave out `agent`")
        if np.shape(obs) != (spec.obs_dim,):
            raise TridentError(f"obs of one agent must have shape [{spec.obs_dim}], not {list(np.shape(obs))}")
        rows = np.tile(np.asarray(obs), (spec.num_agents, 1))
        mask = None if mode_mask is None else np.tile(np.asarray(mode_mask), (spec.num_agents, 1))
        action = self._act_checked(checked_view(spec, rows, mask), key, deterministic, seed)
        return HybridAction(action.mode[agent], action.params[agent])

    def _act_checked(
        self, view: View, key: Any, deterministic: bool | None, seed: int | None, env_state: Any = None
    ) -> HybridAction:
        algorithm, env = self.setup.algorithm, self.setup.env
        if deterministic is None:
            deterministic = key is None or not algorithm.sampled
        if key is None and not deterministic:
            raise TridentError("a stochastic policy needs key=jax.random.key(...)")
        key = jax.random.key(0) if key is None else key
        batch_dims = view.alive.ndim - 1
        action = self._act[deterministic, batch_dims](self.row(seed), jax.tree.map(jnp.asarray, view), key)
        if self.setup.settings.shielded and env.shield is not None:
            filtered = jax.vmap(env.shield) if batch_dims else env.shield
            action = filtered(env_state, action)[0]
        return rest_the_dead(self.setup.spec, jax.tree.map(np.asarray, action), view)

    def row(self, seed: int | None = None) -> int:
        """Where a seed's policy stands in the state; unless told, the first that has not diverged."""
        seeds = self.setup.seeds
        if seed is None:
            return next((i for i, s in enumerate(seeds) if str(s) not in self.diverged), 0)
        if seed not in seeds:
            raise TridentError(f"{self.out} has no seed {seed}: its seeds are {', '.join(map(str, seeds))}")
        return seeds.index(seed)

    @cached_property
    def _act(self) -> dict[tuple[bool, int], Any]:
        def build(deterministic: bool, batch_dims: int) -> Any:
            def act(row: Any, view: View, key: Any) -> HybridAction:
                state = jax.tree.map(lambda x: x[row], self.state.algo)
                if not batch_dims:
                    return self.setup.algorithm.act(state, view, key, deterministic)[0]
                keys = jax.random.split(key, view.alive.shape[0])

                def one(v, k):
                    return self.setup.algorithm.act(state, v, k, deterministic)[0]

                return jax.vmap(one)(view, keys)

            return jax.jit(act)

        return {(d, b): build(d, b) for d in (False, True) for b in (0, 1)}
