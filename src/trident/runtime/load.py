"""A load test of a server: one client per agent, each at its own phase, each answer awaited and timed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import numpy as np


async def client(host: str, port: int, agent: int, rate: float, count: int, token: str | None) -> list[float]:
    """Seconds from sending to hearing of every answered request."""
    reader, writer = await asyncio.open_connection(host, port, limit=2**22)
    hello = {"hello": {} if token is None else {"token": token}}
    writer.write(json.dumps(hello).encode() + b"\n")
    told = json.loads(await reader.readline())["hello"]
    obs = [0.0] * told["observations"]
    sent: dict[int, float] = {}
    took: list[float] = []

    async def listen() -> None:
        while len(took) < count:
            line = await reader.readline()
            if not line:
                return
            answer = json.loads(line)
            if "mode" in answer:
                took.append(time.perf_counter() - sent.pop(answer["id"]))

    hearing = asyncio.create_task(listen())
    begun = time.perf_counter() + agent / max(told["agents"], 1) / rate
    for i in range(count):
        await asyncio.sleep(max(0.0, begun + i / rate - time.perf_counter()))
        sent[i] = time.perf_counter()
        writer.write(json.dumps({"id": i, "agent": agent, "seq": i, "obs": obs}).encode() + b"\n")
    with contextlib.suppress(TimeoutError):  # what has not come by now is lost
        await asyncio.wait_for(hearing, 5.0)
    writer.close()
    return took


async def measure(
    host: str, port: int, agents: int, rate: float, seconds: float, token: str | None = None
) -> dict[str, Any]:
    count = max(1, round(rate * seconds))
    each = await asyncio.gather(*(client(host, port, a, rate, count, token) for a in range(agents)))
    took = 1e3 * np.concatenate([np.asarray(t) for t in each]) if any(each) else np.array([np.inf])
    p50, p99, most = np.quantile(took, [0.5, 0.99, 1.0])
    return {
        "agents": agents, "per second": rate, "requests": agents * count, "lost": agents * count - sum(map(len, each)),
        "p50 ms": round(float(p50), 3), "p99 ms": round(float(p99), 3), "worst ms": round(float(most), 3),
    }  # fmt: skip
