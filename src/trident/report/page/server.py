"""The page of runs that are still going, from a small server on this machine's own address.

It only reads what runs leave on disk, and when a page asks: nothing watches while nobody looks. A page may ask a run to
stop: that leaves a word in its directory, which training finds after the round.
"""

from __future__ import annotations

import gzip
import hmac
import json
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from trident.errors import TridentError
from trident.report.page import curves
from trident.report.page.content import assemble, groups, run_content
from trident.report.page.document import as_json, document, read_page
from trident.report.page.reading import Reading, display_names, find_runs, read_one
from trident.run_directory import RECORDS, REPORT, RESULT, RUN, ask_to_stop

HOST = "127.0.0.1"
PORT = 8420
FRESH = 90.0
"""Seconds after its last record in which a run is taken to be training, at least."""
ROUNDS = 300
"""Of a run that are read and drawn, at most: an answer costs as much after a million rounds as after so many."""
REST = 100.0
"""A page may ask again after so many times the computing that an answer took: one per cent of a core at most."""


class Watch:
    """What is known of the runs in some places; a run is read again when its files have changed."""

    def __init__(self, places: list[Path]) -> None:
        self.places, self.token = places, secrets.token_urlsafe(16)
        self._lock = Lock()
        self._known: dict[Path, tuple[Any, Reading, dict[str, Any]]] = {}
        self._groups: tuple[Any, list[dict[str, Any]]] = (None, [])
        self.took = 0.0
        """Seconds of computing that the last answer cost."""

    def content(self) -> dict[str, Any]:
        with self._lock:
            return self._content() | {"again": max(1.5, REST * self.took)}

    def _content(self) -> dict[str, Any]:
        folders = list(dict.fromkeys(run for place in self.places for run in find_runs(place)))
        names = display_names(folders)
        detailed, points = len(folders) <= curves.DETAILED, min(curves.points_for(len(folders)), ROUNDS)
        for folder, name in zip(folders, names, strict=True):
            mark = (_mark(folder), name, detailed, points)
            if folder not in self._known or self._known[folder][0] != mark:
                reading = read_one(folder, name, ROUNDS)
                self._known[folder] = (mark, reading, run_content(reading, points, detailed))
        known = [self._known[folder] for folder in folders]
        marks = [mark for mark, *_ in known]
        if self._groups[0] != marks:
            self._groups = marks, groups([reading for _, reading, _ in known], points)
        whole = assemble([], {}, {}) | {"runs": [_with_life(run, r) for _, r, run in known], "groups": self._groups[1]}
        return whole

    def stop(self, name: str) -> bool:
        """Ask the run called so to stop; False if there is none."""
        folder = self._folder(name)
        if folder is not None:
            ask_to_stop(folder)
        return folder is not None

    def replay(self, name: str) -> Any:
        """The episodes in the page that the run called so left when it ended; None if there are none."""
        folder = self._folder(name)
        try:
            return None if folder is None else read_page(folder / REPORT)["runs"][0].get("replay")
        except (TridentError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def _folder(self, name: str) -> Path | None:
        with self._lock:
            return next((r.folder for _, r, _ in self._known.values() if r.name == name), None)


def _mark(folder: Path) -> Any:
    def of(path: Path) -> Any:
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    return tuple(of(folder / name) for name in (RUN, RECORDS, RESULT))


def _with_life(run: dict[str, Any], reading: Reading) -> dict[str, Any]:
    """Whether it is training: by how lately it has written, for the clock of rounds alone knows."""
    status = run.get("status")
    if status is None or status["state"] != "unfinished":
        return run | {"report": (reading.folder / REPORT).is_file()}
    last = max((mark[0] for mark in _mark(reading.folder) if mark is not None), default=0) / 1e9
    pace = status["seconds"] / status["round"] if status["round"] else 60.0
    alive = time.time() - last < max(FRESH, 5.0 * pace)
    return run | {"status": status | {"state": "training" if alive else "unfinished"}}


# --- the server -----------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # a connection for each answer: none outlives the server
    watch: Watch

    def do_GET(self) -> None:
        if not self._is_ours():
            return
        if self.path == "/":
            live = {"token": self.watch.token}
            self._send(200, document(self.watch.content(), live), "text/html; charset=utf-8")
        elif self.path == "/data":
            began = time.thread_time()
            self._send(200, as_json(self.watch.content()), "application/json")
            self.watch.took = time.thread_time() - began
        elif self.path.startswith("/replay?"):
            found = self.watch.replay(parse_qs(urlsplit(self.path).query).get("run", [""])[0])
            if found is None:
                self._send(404, "its page holds none", "text/plain")
            else:
                self._send(200, as_json(found), "application/json")
        else:
            self._send(404, "there is nothing here", "text/plain")

    def do_POST(self) -> None:
        if not self._is_ours():
            return
        try:
            size = min(int(self.headers.get("Content-Length") or 0), 10_000)
            asked = json.loads(self.rfile.read(size))
            name = asked["run"]
        except (ValueError, KeyError, TypeError, RecursionError):
            self._send(400, "which run?", "text/plain")
            return
        if self.path != "/stop" or not hmac.compare_digest(self.headers.get("X-Trident", ""), self.watch.token):
            self._send(403, "only the page may ask that", "text/plain")
            return
        try:
            found = self.watch.stop(str(name))
        except OSError as error:
            self._send(500, f"cannot write there: {error.strerror or error}", "text/plain")
            return
        self._send(200 if found else 404, "asked" if found else "there is no such run", "text/plain")

    def _is_ours(self) -> bool:
        """Another site's name that has been made to mean this machine is turned away."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host in (HOST, "localhost"):
            return True
        self._send(403, "this server answers to its own name alone", "text/plain")
        return False

    def _send(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        packed = len(body) > 10_000 and "gzip" in self.headers.get("Accept-Encoding", "")
        if packed:
            body = gzip.compress(body, 1)
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
            *([("Content-Encoding", "gzip")] if packed else []),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: the terminal belongs to training."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed in the middle of an answer is no news."""


def listen(port: int | None = None) -> socket.socket:
    """Without a port, at the usual one or, if that is taken, any."""
    if port is not None:
        return socket.create_server((HOST, port))
    try:
        return socket.create_server((HOST, PORT))
    except OSError:
        return socket.create_server((HOST, 0))


@contextmanager
def serving(
    places: list[Path], port: int | None = None, at: socket.socket | None = None
) -> Iterator[tuple[Server, str]]:
    """A server and its address; `at`: where somebody listens already."""
    at = listen(port) if at is None else at
    handler = type("Handler", (Handler,), {"watch": Watch(places)})
    server = Server(at.getsockname(), handler, bind_and_activate=False)
    server.socket.close()
    server.socket, server.server_port = at, at.getsockname()[1]
    try:
        yield server, address_of(at)
    finally:
        server.server_close()


def address_of(at: socket.socket) -> str:
    return f"http://{HOST}:{at.getsockname()[1]}/"
