"""A load test of a server: one client per agent, each at its own phase, each answer awaited and timed.

What is sent are numbers from the ranges that the policy was recorded in, so that it decides as it would in use.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from typing import Any

import numpy as np

from trident.errors import TridentError

VARIETY = 64
"""Observations that are drawn beforehand: drawing and spelling them is not the server's time."""
PATIENCE = 5.0
"""Seconds after the last request; what has not come by then is lost."""


class Probe(asyncio.Protocol):
    """One agent's client."""

    transport: asyncio.Transport

    def __init__(self, agent: int, token: str | None):
        self.agent, self.token = agent, token
        self.told: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent: dict[int, float] = {}
        self.took: list[float] = []
        self.branches: Counter[str] = Counter()
        self.rest = b""
        self.left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # pyright: ignore[reportAttributeAccessIssue]
        self.say({"hello": {} if self.token is None else {"token": self.token}})

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.told.done():
            self.told.set_exception(TridentError("the server let a client go before it was greeted"))
        if not self.over.done():
            self.over.set_result(None)

    def say(self, content: dict[str, Any]) -> None:
        self.transport.write(json.dumps(content).encode() + b"\n")

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for answer in map(json.loads, lines):
            if not self.told.done():
                self.greet(answer)
            elif "mode" in answer:
                self.took.append(now - self.sent.pop(answer["id"]))
                self.branches[answer["branch"]] += 1
                self.left -= 1
                if not self.left:
                    self.over.set_result(None)

    def greet(self, answer: dict[str, Any]) -> None:
        if "hello" in answer:
            self.told.set_result(answer["hello"])
        else:
            self.told.set_exception(TridentError(f"the server says: {answer.get('error')}"))

    async def ask(self, rate: float, count: int) -> None:
        """`count` requests, at their times whatever the answers do."""
        told, rng = await self.told, np.random.default_rng(self.agent)
        low, high = (np.array(told["recorded"][edge]) for edge in ("low", "high"))
        rows = rng.uniform(low, high, (VARIETY, len(low))).astype("<f4")
        drawn = [base64.b64encode(row.tobytes()).decode() for row in rows]
        loop, self.left = asyncio.get_running_loop(), count
        begun = loop.time() + self.agent / told["agents"] / rate
        for i in range(count):
            await asyncio.sleep(max(0.0, begun + i / rate - loop.time()))
            head = f'{{"id": {i}, "agent": {self.agent}, "seq": {i}, "obs": "'
            self.sent[i] = time.perf_counter()
            self.transport.write(f'{head}{drawn[i % VARIETY]}"}}\n'.encode())
        await asyncio.wait({self.over}, timeout=PATIENCE)
        self.transport.close()


async def measure(
    host: str, port: int, agents: int, rate: float, seconds: float, token: str | None = None
) -> dict[str, Any]:
    count, loop = max(1, round(rate * seconds)), asyncio.get_running_loop()
    probes: list[Probe] = []
    for agent in range(agents):
        probes.append((await loop.create_connection(lambda a=agent: Probe(a, token), host, port))[1])
    there = (await probes[0].told)["agents"]
    if agents > there:
        raise TridentError(f"the server's team has {there} agents: --agents {there} at most")
    await asyncio.gather(*(probe.ask(rate, count) for probe in probes))
    took = 1e3 * np.concatenate([np.asarray(probe.took) for probe in probes])
    took = took if len(took) else np.array([np.inf])
    p50, p99, most = np.quantile(took, [0.5, 0.99, 1.0])
    branches = sum((probe.branches for probe in probes), Counter[str]())
    return {
        "agents": agents, "per second": rate, "requests": agents * count,
        "lost": agents * count - sum(len(probe.took) for probe in probes),
        "p50 ms": round(float(p50), 3), "p99 ms": round(float(p99), 3), "worst ms": round(float(most), 3),
        "branches": dict(branches),
    }  # fmt: skip
