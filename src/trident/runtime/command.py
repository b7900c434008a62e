"""`python -m trident.runtime COMMAND`, and the same as `trident runtime COMMAND`: needs NumPy, nothing else."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from trident.errors import TridentError
from trident.runtime import audit as auditing
from trident.runtime.backends import BACKENDS, policy_of
from trident.runtime.bundle import open_bundle
from trident.runtime.guard import Guard
from trident.runtime.parity import self_test
from trident.runtime.replay import replay
from trident.runtime.server import Server, Service

ABOUT = """\
Run an exported policy behind its guard. Needs NumPy, nothing else.

  trident runtime check bundle/         is it whole, does it compute alike here
  trident serve bundle/ --audit log/    decide for clients on 127.0.0.1:7700
  trident audit log/                    was the log tampered with
  trident audit log/ --replay bundle/   every decision again, bit for bit
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise TridentError(f"{message} (`{self.prog} --help`)")


def parser(prog: str = "trident runtime") -> argparse.ArgumentParser:
    whole = Parser(prog=prog, description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = whole.add_subparsers(
        dest="command", required=True, metavar="check | serve | load | audit", parser_class=Parser
    )
    check = commands.add_parser("check", help="test a bundle on this machine", description="Test a bundle here.")
    _bundle(check)
    _backend(check)
    serve = commands.add_parser(
        "serve", help="decide for clients", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Decide for clients over a socket: JSON lines, see docs/deployment.md.\n\n"
        "  trident serve bundle/\n  trident serve bundle/ --audit log/ --override order.json\n"
        "  curl http://127.0.0.1:7700/metrics\n  kill -USR1 PID   (fail-safe for all; -USR2 releases)",
    )  # fmt: skip
    _bundle(serve)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (others than loopback need a token)")
    serve.add_argument("--port", type=int, default=7700, help="port; 0 takes a free one (default 7700)")
    serve.add_argument("--token-file", type=Path, help="file with the token that clients must show")
    serve.add_argument("--audit", type=Path, help="directory of the audit log (default: none is kept)")
    serve.add_argument("--override", type=Path, help="file through which a human may take over")
    serve.add_argument("--deadline", type=float, help="seconds the policy may take (default: the bundle's)")
    serve.add_argument("--idle", type=float, default=30.0, help="seconds until a silent client is let go (default 30)")
    serve.add_argument("--seed", type=int, default=0, help="of the draws of a sampled policy")
    _backend(serve)
    load = commands.add_parser("load", help="load-test a server", description="Time a server's answers under load.")
    load.add_argument("--host", default="127.0.0.1", help="where it listens")
    load.add_argument("--port", type=int, default=7700, help="its port (default 7700)")
    load.add_argument("--agents", type=int, default=4, help="clients, one per agent (default 4)")
    load.add_argument("--rate", type=float, default=50.0, help="requests of each per second (default 50)")
    load.add_argument("--seconds", type=float, default=10.0, help="how long (default 10)")
    load.add_argument("--token-file", type=Path, help="file with the server's token")
    audit = commands.add_parser(
        "audit", help="check an audit log", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Follow an audit log's hash chain.\n\n"
        "  trident audit log/\n  trident audit log/ --replay bundle/   every decision again, bit for bit",
    )  # fmt: skip
    audit.add_argument("log", type=Path, metavar="LOG", help="directory (or one file) of the log")
    audit.add_argument("--head", help="the head you kept: tells whether the end was cut off")
    audit.add_argument("--replay", type=Path, metavar="BUNDLE", help="decide everything again and compare bit for bit")
    return whole


def _bundle(command: argparse.ArgumentParser) -> None:
    command.add_argument("bundle", type=Path, metavar="BUNDLE", help="what `trident export` wrote")


def _backend(command: argparse.ArgumentParser) -> None:
    command.add_argument("--backend", choices=BACKENDS, default="numpy", help="what runs the policy (default numpy)")


def main(argv: list[str] | None = None, prog: str = "trident runtime") -> int:
    options = parser(prog).parse_args(argv)
    return {"check": check, "serve": serve, "load": load, "audit": audit}[options.command](options)


def check(options: argparse.Namespace) -> int:
    bundle = open_bundle(options.bundle)
    print(bundle)
    print(json.dumps(self_test(bundle, options.backend), indent=1))
    return 0


def token_of(file: Path | None) -> str | None:
    if file is None:
        return None
    token = file.read_text().strip()
    if not token:
        raise TridentError(f"{file} is empty: put the token into it")
    return token


def load(options: argparse.Namespace) -> int:
    from trident.runtime.load import measure

    if options.agents < 1 or options.rate <= 0 or options.seconds <= 0:
        raise TridentError("--agents, --rate and --seconds must be above 0")
    where = options.host, options.port
    try:
        found = asyncio.run(
            measure(*where, options.agents, options.rate, options.seconds, token_of(options.token_file))
        )
    except (OSError, KeyError, ValueError) as error:
        raise TridentError(f"{where[0]}:{where[1]} cannot be tested: {error}; is a server there?") from error
    print(json.dumps(found))
    return 0


def serve(options: argparse.Namespace) -> int:
    token = token_of(options.token_file)
    service = Service(options.host, options.port, token, options.idle)
    bundle = open_bundle(options.bundle)
    log = None if options.audit is None else auditing.Audit(options.audit)
    given = {} if options.deadline is None else {"deadline": options.deadline}
    guard = Guard(
        bundle, policy=policy_of(bundle, options.backend), audit=log, override_file=options.override,
        seed=options.seed, **given,
    )  # fmt: skip
    guard.override.listen()
    server = Server(guard, service)

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await server.run(lambda port: print(f"{bundle}\non {options.host}:{port}, pid {os.getpid()}", flush=True), stop)

    asyncio.run(run())
    print(server.web.health(), end="", file=sys.stderr)
    return 0


def audit(options: argparse.Namespace) -> int:
    report = auditing.verify(options.log, options.head)
    print(f"{report.entries:,} entries, {report.decisions:,} decisions, the chain is whole")
    shares = ", ".join(f"{name} {count:,}" for name, count in sorted(report.branches.items(), key=lambda x: -x[1]))
    print(f"agents' decisions: {shares or 'none'}")
    for note in report.notes:
        print(f"note: {note}")
    print(f"head: {report.head}")
    if options.replay is not None:
        found = replay(options.log, open_bundle(options.replay))
        if found.different:
            raise TridentError(
                f"{len(found.different)} of {found.decisions} decisions come out differently, "
                f"first {found.different[0]}"
            )
        print(f"replayed: {found.decisions:,} decisions, bit for bit the same")
    return 0
