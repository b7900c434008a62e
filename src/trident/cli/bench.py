"""`trident bench`: measurements of speed, and the tables of the paper."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from trident.allowed import Name, Names, Range
from trident.bench import fingerprint, speed, speed_page
from trident.bench.paper import CAMPAIGNS, Campaign
from trident.bench.table_runner import differences, plan, run_table
from trident.cli import lazily
from trident.cli.options import parse
from trident.cli.page import write_report
from trident.cli.scaling import bench_devices
from trident.errors import TridentError
from trident.launch.board import Board
from trident.launch.options import LaunchOptions, make_launcher
from trident.report.compare import label, load_runs, references
from trident.report.figures import draw_comparison, draw_front
from trident.report.paper_table import grid_table, load, provenance, versus_table
from trident.report.safety import improvement_table, safety_table
from trident.report.study_figures import draw_cumulative, draw_maps, draw_profiles
from trident.report.tables import check_place, insert
from trident.run_directory import REPORT

EXAMPLES = """\
Measure environment, training and update speed on this machine, as ratios.

Examples:
  trident bench speed --quick                    minutes; small networks
  trident bench speed                            everything, tens of minutes
  trident bench speed --only env update          two parts of it
  trident bench speed --algos trident --sizes default
  trident bench speed --show benchmarks/speed/record.json    an earlier record

PyTorch is compared if it can be imported (or by TRIDENT_TORCH_PYTHON's Python).
"""


@dataclass(frozen=True)
class SpeedOptions:
    quick: bool = False
    """Small sizes and few repetitions."""
    only: Names = speed.PARTS
    """Parts: env, update, growth, training, overheads."""
    algos: Names = speed.Plan.algos
    """Algorithms: happo, mappo, trident, trident-large."""
    sizes: Names | None = None
    """Network sizes: tiny, default (with --quick tiny alone)."""
    repeats: Annotated[int, Range(1, 10**4)] | None = None
    """Turns of everything that is timed."""
    out: Path = Path("speed.json")
    """Where to write the record; parts of an earlier one that are not measured again are kept."""
    docs: Path | None = None
    """Where to write the page made from it."""
    show: Path | None = None
    """Print this record instead of measuring."""


TABLE_TEXT = """\
Run every method of a table with one budget; print ours beside the paper's.

Examples:
  trident bench table1 --episodes 1500 --seeds 3 --out runs/table1
  trident bench table1 --methods mappo mappo+planner     (+: warm-started)
  trident bench ablations --methods trident trident-no-physics --episodes 200
  trident bench table1 --jobs 1          one at a time, for comparable minutes
  trident bench table4-aim --steps 4500000 --seeds 3        the paper's budget
  trident bench table6 --maps 3m 8m --methods mappo trident --steps 300000

The same command goes on after a kill. The table is also in OUT/TABLE.md.
"""


OptionalPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
SomeNames = Annotated[Names | None, tyro.conf.arg(metavar="NAME ...")]


@dataclass(frozen=True)
class StudyOptions:
    episodes: Annotated[int, Range(1, 10**12)] = 1500
    """Training episodes per seed, of `horizon` steps."""
    steps: Annotated[Annotated[int, Range(1, 10**15)] | None, tyro.conf.arg(metavar="INT")] = None
    """The same in environment steps."""
    seeds: Annotated[int, Range(1, 2**16)] = 3
    """Seeds per method, trained side by side."""
    keep: tyro.conf.FlagCreatePairsOff[bool] = False
    """Keep the last checkpoints (for `eval`, `export`, `zoo`)."""
    out: OptionalPath = None
    """Folder of the runs; runs/TABLE if left out."""
    figures: OptionalPath = None
    """Folder of the figures; that of the runs if left out."""
    markdown: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the tables as markdown."""
    docs: OptionalPath = None
    """A page to put the table into, between the lines `<!-- TABLE: (any words) -->` and `<!-- end of TABLE -->`."""
    mark: Annotated[Name | None, tyro.conf.arg(metavar="STR")] = None
    """Name in these lines in place of TABLE."""
    launch: Annotated[LaunchOptions, tyro.conf.arg(name="")] = field(default_factory=LaunchOptions)


@dataclass(frozen=True)
class TableOptions(StudyOptions):
    methods: SomeNames = None
    """Rows; all of the table's own if left out."""


@dataclass(frozen=True)
class MapTableOptions(TableOptions):
    maps: SomeNames = None
    """Maps; all of the table's own if left out."""


FINGERPRINT_TEXT = """\
Do training rounds still run the same programs? Traced, hashed and compared.

Examples:
  trident bench fingerprint --envs uav-mec --algos trident macpo     seconds
  trident bench fingerprint                          every pair, an hour
  trident bench fingerprint --store                  they are meant to change
"""


@dataclass(frozen=True)
class FingerprintOptions:
    envs: Names = ()
    """Environments; all of them if left out."""
    algos: Names = ()
    """Algorithms; all of them if left out."""
    record: Path = Path("benchmarks/fingerprints.json")
    """Where the hashes are kept."""
    store: bool = False
    """Keep the hashes of now instead of comparing."""


STUDIES = {
    "paper": ("the paper's six tables at full budget; says what they cost", "paper", "paper"),
    "table3": ("scalability: 4 to 32 UAVs, and four's policy in larger fleets", "studies", "scalability"),
    "table5": ("sensitivity: TRIDENT's settings from low to high", "studies", "sensitivity"),
}
"""name -> (one line of help, module of cli and its function)"""


def bench(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: trident bench WHAT [OPTIONS]\n\nspeed          steps per second, compile times, operations")
        print("fingerprint    do training rounds still run the same programs?")
        print("devices        one training on 1, 2, 4 devices: throughput, communication")
        print("\n".join(f"{name:14s} every method of it on {c.about}" for name, c in CAMPAIGNS.items()))
        print("\n".join(f"{name:14s} {about}" for name, (about, *_) in STUDIES.items()))
        return 0
    if argv[0] in STUDIES:
        _, module, function = STUDIES[argv[0]]
        return lazily(f"trident.cli.{module}", function)(argv[1:])
    if argv[0] in CAMPAIGNS:
        return _table(argv[0], argv[1:])
    if argv[0] == "devices":
        return bench_devices(argv[1:])
    if argv[0] == "fingerprint":
        return _fingerprint(parse(FingerprintOptions, argv[1:], "bench fingerprint", FINGERPRINT_TEXT))
    if argv[0] != "speed":
        known = ", ".join(["speed", "fingerprint", "devices", *CAMPAIGNS, *STUDIES])
        raise TridentError(f"unknown measurement {argv[0]!r}: there are {known}")
    options = parse(SpeedOptions, argv[1:], "bench speed", EXAMPLES)
    console = Console(width=None if sys.stdout.isatty() else 140)
    record = speed.read_record(options.show) if options.show else _measure(options, console)
    speed_page.show(record, console)
    if options.docs:
        options.docs.write_text(speed_page.page(record), encoding="utf-8")
    return 0


def _fingerprint(options: FingerprintOptions) -> int:
    stored = {} if options.store else fingerprint.read(options.record)
    hashes: dict[str, dict[str, str]] = {}
    for env, algo, text in fingerprint.measure(options.envs, options.algos):
        hashes.setdefault(env, {})[algo] = text
        mark = "" if options.store or stored.get(env, {}).get(algo) == text else "  CHANGED"
        print(f"{text}  {env} {algo}{mark}", flush=True)
        if options.store:
            fingerprint.write(options.record, hashes)
    other = [] if options.store else fingerprint.changed(hashes, stored)
    print(f"{sum(map(len, hashes.values()))} rounds traced, {len(other)} other than in {options.record}")
    return 1 if other else 0


def _table(name: str, argv: list[str]) -> int:
    campaign = CAMPAIGNS[name]
    several = len(campaign.envs) > 1
    options = parse(MapTableOptions if several else TableOptions, argv, f"bench {name}", TABLE_TEXT)
    maps = options.maps if isinstance(options, MapTableOptions) else None
    envs = [campaign.prefix + m.removeprefix(campaign.prefix) for m in maps] if maps else campaign.envs
    methods, out = options.methods or campaign.methods, options.out or Path("runs") / name
    mark = options.mark or name
    if options.docs:
        check_place(options.docs, mark)
    jobs = plan(campaign, envs, methods, out, options.episodes, options.steps, options.seeds)
    with closing(make_launcher(options.launch)) as launcher:
        missing = run_table(jobs, launcher, Board(sys.stderr), options.keep)
    if len(missing) == len(jobs):
        raise TridentError(f"nothing finished: {'; '.join(f'{job.method}: {why}' for job, why in missing.items())}")
    style = "markdown" if options.markdown else "plain"
    done = {env: [job.folder for job in jobs if job.env == env and job not in missing] for env in envs}
    lost = {env: {job.method: why for job, why in missing.items() if job.env == env} for env in envs}
    tables = [_tables(campaign, done, methods, lost, kind) for kind in (style, "markdown")]
    for env, folders in done.items():
        other = {job.method: differences(job) for job in jobs if job.folder in folders}
        tables = [text + f"\n\n{_titled(campaign, env)}{provenance(folders, other)}" for text in tables]
    print(tables[0])
    page = tables[1]
    (out / f"{name}.md").write_text(page + "\n", encoding="utf-8")
    if options.docs:
        insert(options.docs, mark, page)
    for env, folders in done.items():
        where = options.figures or out
        if folders:
            _draw(campaign, folders, where / env if several else where)
    if campaign.headline is not None and any(done.values()):
        _draw_all(campaign.headline, done, methods, options.figures or out)
    print(write_report(out / REPORT, [folder for folders in done.values() for folder in folders], replay=False))
    return 1 if missing else 0


def _tables(
    campaign: Campaign,
    done: dict[str, list[Path]],
    methods: Sequence[str],
    lost: dict[str, dict[str, str]],
    style: str,
) -> str:
    """Methods x environments, if the table has several, and each environment's own."""
    parts = []
    if campaign.headline is not None:
        grid = (campaign.headline, campaign.paper, campaign.averages, style, campaign.full_steps)
        parts.append(grid_table(done, tuple(methods), *grid))
    blocks = campaign.block_of(methods)
    for env, folders in done.items():
        paper, columns = campaign.paper.get(env, {}), campaign.columns_of(env)
        for title, block in blocks.items():
            mine = [folder for folder in folders if folder.name in block]
            gone = {method: why for method, why in lost[env].items() if method in block}
            if not mine and not gone:
                continue
            head = _titled(campaign, env) + (f"**{title}**\n\n" if len(blocks) > 1 else "")
            parts.append(head + versus_table(mine, columns, paper, gone, style, campaign.full_steps))
            if mine:
                parts += filter(None, [safety_table(mine, style), improvement_table(mine, style)])
    return "\n\n".join(parts)


def _titled(campaign: Campaign, env: str) -> str:
    return f"{env}\n\n" if len(campaign.envs) > 1 else ""


def _draw(campaign: Campaign, folders: list[Path], where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    loaded = [(label(run, folder), run, result, records) for folder, (run, result, records) in
              zip(folders, load_runs(folders), strict=True)]  # fmt: skip
    also = (campaign.headline,) if campaign.headline is not None else ()
    beside = references([result for _, _, result, _ in loaded], {run["algo"] for _, run, _, _ in loaded})
    curves = [(text, run, records) for text, run, _, records in loaded]
    print(draw_comparison(curves, where / "curves.png", also, beside))
    if loaded[0][1]["constraints"]:
        print(draw_front([(text, run, result) for text, run, result, _ in loaded], where / "front.png"))
        print(draw_cumulative(curves, where / "cumulative.png"))


def _draw_all(metric: str, done: dict[str, list[Path]], methods: Sequence[str], where: Path) -> None:
    """Every environment's curves of the headline metric, and the performance profiles of its evaluations."""
    where.mkdir(parents=True, exist_ok=True)
    runs = {env: load(folders) for env, folders in done.items() if folders}
    maps = {env: [(t.name, t.run, t.records) for t in trained if t.records] for env, trained in runs.items()}
    print(draw_maps(maps, metric, where / "maps.png"))
    scores = {m: [t.values(metric) for trained in runs.values() for t in trained if t.name == m] for m in methods}
    whole = {m: groups for m, groups in scores.items() if len(groups) == len(runs) and all(groups)}
    if len(whole) > 1:
        print(draw_profiles(whole, where / "profiles.png", metric.rpartition("/")[2]))


def _measure(options: SpeedOptions, console: Console) -> dict:
    base = speed.QUICK if options.quick else speed.Plan()
    plan = replace(
        base, parts=options.only, algos=options.algos, sizes=options.sizes or base.sizes,
        repeats=options.repeats or base.repeats,
    )  # fmt: skip
    earlier = speed.read_record(options.out) if options.out.exists() else {}
    save = lambda record: speed.write_record(options.out, record)  # noqa: E731
    if console.is_terminal:
        with console.status("starting") as status:
            record = speed.measure(plan, status.update, save, earlier)
    else:
        record = speed.measure(plan, lambda text: console.print(text, highlight=False), save, earlier)
    console.print(f"record: {options.out}")
    return record
