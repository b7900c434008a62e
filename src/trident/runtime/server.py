"""A guarded policy behind a socket: one JSON object per line each way, several clients, all in one process.

    -> {"hello": {"token": "..."}}                                      the token only where one is asked for
    <- {"hello": {"agents": 4, "observations": 80, "modes": [...], "parameters": [...], "now": 12.5, ...}}
    -> {"id": 7, "agent": 2, "obs": [...], "stamp": 12.51, "seq": 7, "mask": [1, 1, 0]}      stamp, seq, mask: optional
    <- {"id": 7, "agent": 2, "mode": 1, "params": [...], "branch": "policy", "why": "", "ms": 0.9}
    -> {"id": 8, "obs": [[...], ...], "cost": [...], "margin": [...], "state": [...]}      the whole team at once
    <- {"id": 8, "mode": [...], "params": [[...], ...], "branch": [...], "why": [...], "ms": 1.2}
    -> {"id": 9, "override": {"action": "fail-safe", "agents": [2], "by": "Ada"}}      or {"release": {...}}
    <- {"id": 9, "orders": {"2": "fail-safe"}}

`obs` may also be text, little-endian float32 in base64: it is read ten times as fast. Stamps are seconds of the
server's clock, which the hello tells. What waits when a decision begins is decided together: under load batches grow
and nobody is starved. Browsers and Prometheus are answered on the same port (`trident.runtime.web`).
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from trident.errors import TridentError
from trident.runtime.audit import plain
from trident.runtime.guard import Decision, Guard
from trident.runtime.inputs import as_flags
from trident.runtime.web import BUCKETS, Web, is_web

LONGEST = 2**22
"""Bytes of a line."""


REST = 0.5
"""Between two decisions for single agents, of the time that the last one took."""


@dataclass(frozen=True)
class Service:
    host: str = "127.0.0.1"
    port: int = 7700
    token: str | None = None
    idle: float = 30.0
    """Seconds without a word after which a client is let go."""
    waiting: int = 16
    """Requests of one client that may wait; more are answered with `busy`."""
    garbage: int = 10
    """Lines that make no sense after which a client is let go."""


class Request(NamedTuple):
    client: Client
    content: dict[str, Any]
    came: float


class Client(asyncio.Protocol):
    """One connection: bytes in, lines out. A client that does not read is not read from either."""

    transport: asyncio.Transport

    def __init__(self, server: Server):
        self.server = server
        self.known = server.service.token is None
        self.waiting = self.garbage = self.lines = 0
        self.said_all = False
        self.heard = time.monotonic()
        self.begun: list[bytes] = []  # of a line that has not ended
        self.length = 0
        self.web: bytes | None = None  # what a browser has said so far

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # pyright: ignore[reportAttributeAccessIssue]
        self.server.clients.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.clients.discard(self)
        self.server.numbers.errors += exc is not None

    def eof_received(self) -> bool:
        """A client that has said all it wants to say still hears the answers."""
        self.said_all = True
        return self.waiting > 0

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = b"".join((*self.begun, ended[0]))
            self.begun, self.length = [], 0
        self.begun.append(rest)
        self.length += len(rest)
        for line in ended:
            if self.transport.is_closing():
                return
            self.line(line)
        if self.web is not None:
            self.browse()
        elif self.length > LONGEST:
            self.server.numbers.errors += 1
            self.leave({"error": f"a line is longer than {LONGEST} bytes"})

    def line(self, line: bytes) -> None:
        self.lines += 1
        if self.web is not None or (self.lines == 1 and is_web(line)):
            self.web = (self.web or b"") + line + b"\n"
            return
        fault = self.server.take(self, line)
        if fault:
            self.garbage += 1
            self.server.numbers.errors += 1
            self.send(fault)
            if self.garbage >= self.server.service.garbage:
                self.transport.close()

    def browse(self) -> None:
        assert self.web is not None
        answer = self.server.web.answer(self.web + b"".join(self.begun))
        if answer is not None:
            self.transport.write(answer)
            self.transport.close()

    def send(self, content: dict[str, Any]) -> None:
        if not self.transport.is_closing():
            self.transport.write(json.dumps(content, separators=(",", ":")).encode() + b"\n")

    def answer(self, content: dict[str, Any]) -> None:
        self.waiting -= 1
        self.send(content)
        if self.said_all and not self.waiting:
            self.transport.close()

    def leave(self, last: dict[str, Any]) -> None:
        self.send(last)
        self.transport.close()
        asyncio.get_running_loop().call_later(1.0, self.transport.abort)  # who does not read is not waited for


@dataclass
class Numbers:
    """For metrics."""

    started: float = field(default_factory=time.monotonic)
    requests: int = 0
    busy: int = 0
    errors: int = 0
    seconds: float = 0.0
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(len(BUCKETS) + 1, np.int64))

    def took(self, seconds: float) -> None:
        self.seconds += seconds
        self.buckets[int(np.searchsorted(BUCKETS, seconds))] += 1


class Server:
    def __init__(self, guard: Guard, service: Service = Service()):  # noqa: B008 (frozen)
        check_exposure(service)
        self.guard, self.service, self.numbers = guard, service, Numbers()
        self.clients: set[Client] = set()
        self.queue: deque[Request] = deque()
        self.rested = 0.0
        self.latest: dict[int, tuple[float, dict[str, Any]]] = {}
        """When each agent was last decided for, and how."""
        self.web = Web(self)
        self.space = guard.space
        self.hello = {
            "agents": self.space.agents, "observations": self.space.obs_dim, "modes": list(self.space.modes),
            "parameters": list(self.space.params), "bundle": guard.bundle.manifest["sha256"],
            "names": guard.bundle.manifest["spaces"]["observations"],
            "recorded": {"low": self.space.obs_low.tolist(), "high": self.space.obs_high.tolist()},
        }  # fmt: skip

    async def run(self, ready: Any = None, until: asyncio.Event | None = None) -> None:
        """Serve until told to stop. `ready(port)` is called when clients may come."""
        loop = asyncio.get_running_loop()
        self.broken = loop.create_future()
        try:
            listener = await loop.create_server(lambda: Client(self), self.service.host, self.service.port)
        except OSError as error:
            where = f"{self.service.host}:{self.service.port}"
            raise TridentError(f"cannot listen on {where}: {error.strerror or error}") from error
        if ready is not None:
            ready(listener.sockets[0].getsockname()[1])
        stop = until or asyncio.Event()
        ends = {asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self.dismiss_the_silent()), self.broken}
        try:
            async with listener:
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                for client in [*self.clients]:
                    client.transport.close()
        finally:
            for task in ends:
                task.cancel()

    # --- clients ----------------------------------------------------------------------------------

    async def dismiss_the_silent(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.service.idle / 4))
            now = time.monotonic()
            for client in [*self.clients]:
                if now - client.heard > self.service.idle and not client.transport.is_closing():
                    client.leave({"error": f"nothing heard for {self.service.idle:g} s"})

    def take(self, client: Client, line: bytes) -> dict[str, Any] | None:
        """Put a request where it will be decided; or the complaint."""
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            return {"error": "not JSON"}
        if not isinstance(content, dict):
            return {"error": "not a JSON object"}
        if "hello" in content:
            return self.greet(client, content["hello"])
        mark = {"id": content.get("id")}
        if not client.known:
            return mark | {"error": "say hello with the token first"}
        if "override" in content or "release" in content:
            return self.order(client, content)
        if "obs" not in content:
            return mark | {"error": "a request needs obs"}
        agent = content.get("agent")
        if agent is not None and (type(agent) is not int or not 0 <= agent < self.space.agents):
            return mark | {"error": f"agent must be a number from 0 to {self.space.agents - 1}"}
        if client.waiting >= self.service.waiting:
            self.numbers.busy += 1
            client.send(mark | {"error": "busy"})
            return None
        if isinstance(content["obs"], str):
            content["obs"] = unpacked(content["obs"], self.space.obs_dim)
        client.waiting += 1
        self.queue.append(Request(client, content, time.perf_counter()))
        if len(self.queue) == 1:  # whoever else is heard in this turn of the loop comes along
            self.decide_soon()
        return None

    def greet(self, client: Client, hello: Any) -> dict[str, Any] | None:
        token = hello.get("token") if isinstance(hello, dict) else None
        wanted = self.service.token
        if wanted is not None and not hmac.compare_digest(str(token).encode(), wanted.encode()):
            client.garbage = self.service.garbage  # one try
            return {"error": "wrong token"}
        client.known = True
        client.send({"hello": self.hello | {"now": self.guard.clock()}})
        return None

    def order(self, client: Client, content: dict[str, Any]) -> dict[str, Any] | None:
        client.send({"id": content.get("id")} | self.obey(content, "client"))
        return None

    def obey(self, content: dict[str, Any], who: str) -> dict[str, Any]:
        """Orders go at once into force; what is in force then."""
        order = content.get("override", content.get("release"))
        order = order if isinstance(order, dict) else {}
        agents = order.get("agents") if isinstance(order.get("agents"), list) else None
        by = f"{who}: {order.get('by', '')}"
        if "override" in content:
            self.guard.override.take(order.get("action", "fail-safe"), agents, by)
        else:
            self.guard.override.release(agents, by)
        return {"orders": plain(self.guard.override.orders)}

    # --- decisions --------------------------------------------------------------------------------

    def decide_soon(self) -> None:
        """At once, or after a rest in which others may come: what waits is decided together, and together is cheaper.
        Without it 32 agents kept a core busy all the time."""
        loop = asyncio.get_running_loop()
        team = self.queue[0].content.get("agent") is None
        if team or loop.time() >= self.rested:
            loop.call_soon(self.decide_waiting)
        else:
            loop.call_at(self.rested, self.decide_waiting)

    def decide_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            for request, reply in self.decide(self.batch()):
                request.client.answer(reply)
        except Exception as error:  # the guard raises nothing: a fault of the server's own
            if not self.broken.done():
                self.broken.set_exception(error)
            return
        done = loop.time()
        self.rested = done + REST * (done - begun)
        if self.queue:  # others are heard in between
            self.decide_soon()

    def batch(self) -> list[Request]:
        """A whole team, or waiting requests of different agents."""
        if self.queue[0].content.get("agent") is None:
            return [self.queue.popleft()]
        taken: dict[int, Request] = {}
        left: deque[Request] = deque()
        while self.queue:
            request = self.queue.popleft()
            agent = request.content.get("agent")
            if agent is None or agent in taken:
                left.append(request)
            else:
                taken[agent] = request
        self.queue = left
        return list(taken.values())

    def decide(self, requests: list[Request]) -> list[tuple[Request, dict[str, Any]]]:
        one = requests[0].content
        decision = self.team(one) if one.get("agent") is None else self.agents(requests)
        replies, done = [], time.perf_counter()
        for request in requests:
            seconds = done - request.came
            self.numbers.requests += 1
            self.numbers.took(seconds)
            said = answer(request.content, decision)
            self.remember(said)
            replies.append((request, said | {"ms": round(1e3 * seconds, 3)}))
        return replies

    def remember(self, said: dict[str, Any]) -> None:
        """For the page."""
        now, agent = time.monotonic(), said.get("agent")
        if agent is not None:
            self.latest[agent] = now, {"branch": said["branch"], "why": said["why"], "mode": said["mode"]}
            return
        for agent, row in enumerate(zip(said["branch"], said["why"], said["mode"], strict=True)):
            self.latest[agent] = now, dict(zip(("branch", "why", "mode"), row, strict=True))

    def team(self, content: dict[str, Any]) -> Decision:
        given = {name: content.get(name) for name in ("mask", "alive", "margin", "cost", "state", "env_state")}
        return self.guard.decide(content["obs"], content.get("stamp"), sequence=content.get("seq"), **given)

    def agents(self, requests: list[Request]) -> Decision:
        """Those that ask; nobody else takes part in this decision."""
        n, modes = self.space.low.shape[:2]
        asked, mask = np.zeros(n, bool), np.ones((n, modes), bool)
        rows: dict[int, Any] = {}
        numbers: dict[int, Any] = {}
        for _, content, _ in requests:
            agent = content["agent"]
            asked[agent], rows[agent] = True, content["obs"]
            if "seq" in content:
                numbers[agent] = content["seq"]
            if "mask" in content:
                own = as_flags(content["mask"], (modes,))
                mask[agent] = False if own is None else own  # a mask that makes no sense allows nothing
        now = self.guard.clock()
        stamps = {a: c.get("stamp", now) for _, c, _ in requests for a in [c["agent"]]}
        return self.guard.decide(rows, stamps, sequence=numbers, mask=mask, alive=asked, now=now)


def unpacked(text: str, obs_dim: int) -> np.ndarray | str:
    """Rows of float32; what is none stays what it is, and is refused by the guard."""
    try:
        rows = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
        return rows if rows.size == obs_dim else rows.reshape(-1, obs_dim)
    except ValueError:
        return text


def answer(content: dict[str, Any], decision: Decision) -> dict[str, Any]:
    action, reasons = decision
    agent = content.get("agent")
    if agent is None:
        whole = {"mode": action.mode.tolist(), "params": action.params.tolist()}
        return (
            {"id": content.get("id")} | whole | {"branch": [r.branch for r in reasons], "why": [r.why for r in reasons]}
        )
    one = {"mode": int(action.mode[agent]), "params": action.params[agent].tolist()}
    reason = reasons[agent]
    return {"id": content.get("id"), "agent": agent} | one | {"branch": reason.branch, "why": reason.why}


def check_exposure(service: Service) -> None:
    """Whoever can be reached from outside asks for a token."""
    try:
        local = service.host == "localhost" or ipaddress.ip_address(service.host).is_loopback
    except ValueError:
        local = False
    if not local and not service.token:
        raise TridentError(
            f"{service.host} can be reached by others: give a token (--token-file FILE), or serve on 127.0.0.1; the "
            "line is not encrypted, so put a tunnel around it"
        )
