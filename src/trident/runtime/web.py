"""What the server says to browsers and monitors: health, metrics, and a page with a human's hand on every agent.

    GET /          the page                        GET /state     what it shows, as JSON
    GET /health    one JSON object                 GET /metrics   Prometheus text
    POST /order    {"override": {...}} or {"release": {...}}, as over the socket

An order needs a key that only the page knows, or the token where one is asked for: another site that is open in the
same browser can send requests here, but neither read the page nor set that header.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trident.runtime.arbiter import Branch
from trident.runtime.audit import plain
from trident.runtime.page import PAGE

if TYPE_CHECKING:
    from trident.runtime.server import Server

METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE")
MOST = 2**16
"""Bytes of a request."""
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Seconds, of the histogram."""
TEXT, JSON, HTML = "text/plain; version=0.0.4", "application/json", "text/html; charset=utf-8"
STATUS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}
SECURITY = (
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'\r\n"
)


def is_web(line: bytes) -> bool:
    """Whether a connection that begins so is a browser's: then nothing of it is ever taken for our own protocol."""
    return line.split(b" ", 1)[0] in METHODS


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def parse(data: bytes) -> Asked | None:
    """None while something is still to come."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    size = headers.get("content-length", "0")
    if len(body) < (int(size) if size.isdigit() else 0):
        return None
    method, path = [*first.split(), "", ""][:2]
    return Asked(method, path, headers, body)


class Web:
    def __init__(self, server: Server):
        self.server, self.key = server, secrets.token_urlsafe(16)

    def answer(self, data: bytes) -> bytes | None:
        """The answer to a request, None while it is not all there."""
        if len(data) > MOST:
            return reply(400, TEXT, "too long\n")
        asked = parse(data)
        if asked is None:
            return None
        if asked.method == "POST" and asked.path == "/order":
            return self.order(asked)
        if asked.method != "GET":
            return reply(404, TEXT, "there is GET, and POST /order\n")
        if asked.path == "/":
            return self.page(asked)
        made = {"/health": (TEXT, self.health), "/metrics": (TEXT, self.metrics), "/state": (JSON, self.state)}
        kind, make = made.get(asked.path, (TEXT, None))
        return reply(404, TEXT, "there is /, /health and /metrics\n") if make is None else reply(200, kind, make())

    # --- a human's hand ---------------------------------------------------------------------------

    def page(self, asked: Asked) -> bytes:
        """With a token the page asks for it; without one it carries the key, and is shown under our own name alone:
        another site's name may have been made to mean this machine."""
        token = self.server.service.token
        host = asked.headers.get("host", "").rpartition(":")[0].strip("[]")
        if token is None and host not in ("127.0.0.1", "localhost", "::1", self.server.service.host):
            return reply(403, TEXT, "this server answers to its own name alone\n")
        manifest = self.server.guard.bundle.manifest
        run, env = manifest["run"], manifest["env"]
        told = {"title": f"{run.get('algo')} on {env.get('name')}", "key": None if token else self.key}
        safe = json.dumps(told).replace("<", "\\u003c")
        return reply(200, HTML, PAGE.replace("{{told}}", safe))

    def order(self, asked: Asked) -> bytes:
        shown = asked.headers.get("x-trident", "").encode()
        if not hmac.compare_digest(shown, (self.server.service.token or self.key).encode()):
            return reply(403, TEXT, "only the page may ask that\n")
        try:
            content = json.loads(asked.body)
            if not isinstance(content, dict) or not content.keys() & {"override", "release"}:
                raise ValueError
        except (ValueError, RecursionError):
            return reply(400, TEXT, "an order is a JSON object with override or release\n")
        return reply(200, JSON, json.dumps(self.server.obey(content, "page")))

    # --- what is to be known ----------------------------------------------------------------------

    def state(self) -> str:
        guard, now = self.server.guard, time.monotonic()
        guard.override.poll()  # what a file or a signal says is shown before the next decision
        agents = [
            {"agent": agent, "order": plain(guard.override.orders.get(agent)), "heard": None} | self._latest(agent, now)
            for agent in range(self.server.space.agents)
        ]
        whole = {"decisions": guard.counts.decisions, "clients": len(self.server.clients), "agents": agents}
        return json.dumps(whole | {"modes": list(self.server.space.modes), "fail-safe": guard.safe_name})

    def _latest(self, agent: int, now: float) -> dict[str, Any]:
        found = self.server.latest.get(agent)
        return {} if found is None else {"heard": round(now - found[0], 2), **found[1]}

    def health(self) -> str:
        server, audit = self.server, self.server.guard.audit
        state = {
            "ok": True, "decisions": server.guard.counts.decisions, "clients": len(server.clients),
            "orders": plain(server.guard.override.orders), "audit lost": 0 if audit is None else audit.lost,
            "seconds": round(time.monotonic() - server.numbers.started, 1),
        }  # fmt: skip
        return json.dumps(state) + "\n"

    def metrics(self) -> str:
        server, counts, numbers = self.server, self.server.guard.counts, self.server.numbers
        assert counts.branches is not None
        lines = ["# TYPE trident_agent_decisions_total counter"]
        lines += [f'trident_agent_decisions_total{{branch="{b.label}"}} {counts.branches[b]}' for b in Branch]
        simple = {
            "decisions_total": counts.decisions, "late_total": counts.late, "requests_total": numbers.requests,
            "busy_total": numbers.busy, "errors_total": numbers.errors,
        }  # fmt: skip
        for name, value in simple.items():
            lines += [f"# TYPE trident_{name} counter", f"trident_{name} {value}"]
        audit = server.guard.audit
        gauges = {
            "clients": len(server.clients), "waiting": len(server.queue),
            "overridden_agents": len(server.guard.override.orders), "audit_lost": 0 if audit is None else audit.lost,
        }  # fmt: skip
        for name, value in gauges.items():
            lines += [f"# TYPE trident_{name} gauge", f"trident_{name} {value}"]
        constraints = server.guard.bundle.manifest["constraints"]
        for c, mean in zip(constraints, server.guard.monitor.means, strict=True):
            lines.append(f'trident_cost_mean{{cost="{c["name"]}",limit="{c["limit"]:g}"}} {mean:.6g}')
        lines.append("# TYPE trident_request_seconds histogram")
        total = np.cumsum(numbers.buckets)
        edges = [*(f"{edge:g}" for edge in BUCKETS), "+Inf"]
        lines += [f'trident_request_seconds_bucket{{le="{e}"}} {t}' for e, t in zip(edges, total, strict=True)]
        lines += [f"trident_request_seconds_sum {numbers.seconds:.6f}", f"trident_request_seconds_count {total[-1]}"]
        return "\n".join(lines) + "\n"


def reply(status: int, kind: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status} {STATUS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{SECURITY}Connection: close\r\n\r\n".encode() + body
