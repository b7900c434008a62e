"""What README and docs say can be done: every code block runs, every command parses, every link leads somewhere.

Python blocks run in order, page by page, in a temporary directory, at tiny sizes and for one round. Of a `trident`
command, in a block or in a line, every option and every name is checked by the real parser.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tyro

import trident
from trident import api
from trident.bench.fingerprint import tiny
from trident.cli import COMMANDS, main
from trident.fields import change
from trident.report import figures
from trident.runtime import command as command_of_the_runtime
from trident.training import hosts
from trident.training.registry import default_config, make_env
from trident.training.settings import make_setup

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md", *sorted(ROOT.glob("docs/*.md"))]
EXTRAS = "<!-- with extras -->\n"
MARK = r"(?P<mark><!-- (?:not run: [^>]+|with extras) -->\n)?"
FENCE = re.compile(MARK + r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Block(NamedTuple):
    language: str
    code: str
    run: bool
    line: int
    extras: bool


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(b["language"], b["code"], b["mark"] is None, text.count("\n", 0, b.start("code")), b["mark"] == EXTRAS)
        for b in FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def with_python(page: Path) -> bool:
    return any(block.language == "python" for block in blocks(page))


# --- python ---------------------------------------------------------------------------------------


def train_a_little(env: Any = "uav-mec", algo: str | None = None, *, config: Any = None, **keywords: Any) -> api.Run:
    """trident.train at tiny sizes, for one round, without what follows it."""
    system = make_env(env) if isinstance(env, str) else env
    algo = algo or api.default_algorithm()
    whole = tiny(change(default_config(algo, system), config or {}, algo))
    few = {"episodes": 1, "seeds": min(keywords.get("seeds", 1), 2), "eval_episodes": 0, "video": False}
    return api.train(env, algo, config=whole, **keywords | few)


@pytest.mark.parametrize("page", [p for p in PAGES if with_python(p)], ids=name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # compiled programs, apart from the user's
    monkeypatch.setattr(trident, "train", train_a_little, raising=False)
    monkeypatch.setattr(figures, "draw_figures", lambda folder: [])
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page):
        if block.language == "python" and block.run:
            exec(compile("\n" * block.line + block.code, str(page), "exec"), names)


@pytest.mark.adapters
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [p for p in PAGES if any(b.extras for b in blocks(p))], ids=name)
def test_python_blocks_with_extras_run(page, tmp_path, monkeypatch):
    """As above, where the packages are that they plug in; each is short."""
    for package in ("pettingzoo", "mpe2", "jaxmarl", "camar", "gymnasium_robotics"):
        pytest.importorskip(package, reason="make test-adapters")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trident, "train", train_a_little, raising=False)
    monkeypatch.setattr(figures, "draw_figures", lambda folder: [])
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page):
        if block.language == "python" and block.extras:
            assert len(block.code.splitlines()) < 60
            exec(compile("\n" * block.line + block.code, str(page), "exec"), names)


def test_every_block_says_what_it_is():
    """Nothing escapes the checks by having no language; only what needs a program from elsewhere is not run."""
    found = {(name(page), b.language) for page in PAGES for b in blocks(page)}
    assert {pair for pair in found if pair[1] not in ("python", "sh", "text", "toml")} == set()
    assert all(tomllib.loads(b.code) for page in PAGES for b in blocks(page) if b.language == "toml")
    assert [(name(p), b.code.splitlines()[0]) for p in PAGES for b in blocks(p) if not b.run and not b.extras] == [
        ("docs/smac.md", "from smac.env import StarCraft2Env")
    ]


# --- commands -------------------------------------------------------------------------------------


class Parsed(BaseException):
    """The arguments of a command were understood."""


def commands(page: Path) -> list[str]:
    """`trident ...` in shell blocks, in lines of prose and in the marks of tables."""
    lines = "\n".join(b.code for b in blocks(page) if b.language == "sh").replace("\\\n", " ").splitlines()
    inline = [" ".join(c.split()) for c in re.findall(r"`(trident [a-z][^`]*)`", prose(page))]
    return [line.partition(" # ")[0].strip() for line in [*lines, *inline] if line.startswith("trident ")]


def is_whole(command: str) -> bool:
    """Commands with dots in place of words, or with a placeholder where a choice is meant, name no call."""
    return "..." not in command and not re.search(r"\b(ENV|ALGO|SOURCE|NAME|COMMAND|MAP|TABLE)\b", command)


def job_commands(file: Path) -> list[str]:
    """What a cluster's job file tells `trident`."""
    text = file.read_text(encoding="utf-8").replace("\\\n", " ").replace("$HEAD", "node:6379")
    return [f"trident {words}" for words in re.findall(r"""trident"? (bench [^\n"]*(?:"[^"]*"[^\n"]*)*)""", text)]


JOBS = [(name(f), c) for f in sorted((ROOT / "examples/cluster").glob("*.[sy]*")) for c in job_commands(f)]
WHOLE = [(name(p), c) for p in PAGES for c in commands(p) if is_whole(c)] + JOBS


@pytest.fixture
def only_parse(monkeypatch):
    real = tyro.cli

    def parse(*args: Any, **keywords: Any) -> Any:
        options = real(*args, **keywords)
        if hasattr(options, "settings") and hasattr(options, "env"):  # of a training, not of a study of settings
            make_setup(options.env, options.algo, options.settings, options.config)
        raise Parsed

    def parsed(options: Any) -> int:
        raise Parsed

    monkeypatch.setattr(tyro, "cli", parse)
    monkeypatch.setattr(hosts, "joined", lambda text: nullcontext(hosts.membership(text)))
    for name in ("check", "serve", "load", "audit"):
        monkeypatch.setattr(command_of_the_runtime, name, parsed)


@pytest.mark.parametrize(("page", "command"), WHOLE)
def test_commands_parse(page, command, only_parse, capsys):
    words = shlex.split(command)[1:]
    if len(words) == 1:  # its name alone
        assert words[0] in COMMANDS
        return
    try:
        code = main(words)
    except Parsed:
        return
    except SystemExit as end:
        code = end.code
    assert code in (0, None), capsys.readouterr().err
    assert {"--help", "--help-all"} & set(words), "a command that was neither parsed nor asked for help"


def test_commands_are_found():
    """The expressions above still see the commands."""
    assert len(WHOLE) > 40
    assert len({file for file, _ in JOBS}) == 3
    assert ("README.md", "trident train uav-mec --limit energy=0.005") in WHOLE


# --- links, pictures, tables ----------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name(page)} links to {target}"
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{name(page)}: no heading {target}"


def table_rows(text: str) -> dict[str, list[str]]:
    """Of all tables of methods in a text."""
    tables = [part for part in re.split(r"\n\s*\n", text) if part.lstrip().startswith("| method |")]
    lines = [line for table in tables for line in table.splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def test_the_readme_has_the_numbers_of_the_results():
    """Its few rows are copied from the table that `trident bench table1` writes into docs/results.md."""
    whole = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    found = table_rows(whole[whole.index("<!-- table1:") : whole.index("<!-- end of table1 -->")])
    whole = {method.replace(" (sampled)", ""): cells for method, cells in found.items()}
    columns = [found["method"].index(c) for c in ("Reward", "Total V. %", "violations in training %")]
    readme = prose(ROOT / "README.md")
    short = table_rows(readme[readme.index("| method | reward |") :].partition("\n\n")[0])
    assert len(short) == 2 + 6
    for method in list(short)[2:]:
        ours = [re.sub(r" \(-?[\d.]+\)$", "", whole[method][c]) for c in columns]  # without the paper's number
        assert short[method] == ours, f"README.md: the row should be | {method} | {' | '.join(ours)} |"
