"""A human's hand: taken by call, by file or by signal; it wins at once and stays until it is released explicitly.

What is ordered is "fail-safe", "base policy", or an action {"mode": ..., "params": [...]} for every agent named.

    guard.override.take("fail-safe", by="Ada")      guard.override.release(by="Ada")
    echo '{"action": "fail-safe", "by": "Ada"}' > override.json      echo '{"release": true, "by": "Ada"}' > ...
    kill -USR1 PID                                  kill -USR2 PID

A file that cannot be understood is an order to be safe. Deleting the file releases nothing.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAIL_SAFE, BASE_POLICY = "fail-safe", "base policy"


class Override:
    """`orders` holds what is in force, by agent. `told(event)` is called with every change."""

    def __init__(self, agents: int, told: Callable[[dict[str, Any]], None] | None = None, file: Path | None = None):
        self.agents, self.told, self.file = agents, told, file
        self.orders: dict[int, Any] = {}
        self._seen: tuple[int, int, int] | None = None
        self._signalled: list[str] = []

    def take(self, action: Any = FAIL_SAFE, agents: list[int] | None = None, by: str = "call") -> None:
        """Whom nobody names means all; an order that makes no sense means the fail-safe."""
        chosen = [a for a in agents if isinstance(a, int) and 0 <= a < self.agents] if agents is not None else None
        chosen = chosen or list(range(self.agents))
        if not (action in (FAIL_SAFE, BASE_POLICY) if isinstance(action, str) else _is_action(action)):
            action = FAIL_SAFE
        self.orders |= dict.fromkeys(chosen, action)
        self._tell({"override": "taken", "agents": chosen, "action": action, "by": str(by)[:200]})

    def release(self, agents: list[int] | None = None, by: str = "call") -> None:
        freed = [a for a in (self.orders if agents is None else agents) if a in self.orders]
        for agent in freed:
            del self.orders[agent]
        self._tell({"override": "released", "agents": freed, "by": str(by)[:200]})

    def listen(self) -> None:
        """From now on SIGUSR1 takes over all agents (fail-safe) and SIGUSR2 releases them. Main thread only."""
        signal.signal(signal.SIGUSR1, lambda *_: self._signalled.append("take"))
        signal.signal(signal.SIGUSR2, lambda *_: self._signalled.append("release"))

    def poll(self) -> None:
        """Called before every decision: signals first, then the file."""
        while self._signalled:
            order = self._signalled.pop(0)
            (self.take if order == "take" else self.release)(by="signal")
        if self.file is None:
            return
        try:
            found = self.file.stat()
        except OSError:
            return
        mark = (found.st_mtime_ns, found.st_size, found.st_ino)
        if mark != self._seen:
            self._seen = mark
            self._obey(self.file)

    def _obey(self, file: Path) -> None:
        try:
            order = json.loads(file.read_text(encoding="utf-8"))
            agents, by = order.get("agents"), f"file: {order.get('by', '')}"
            agents = agents if isinstance(agents, list) else None
            if order.get("release") is True:
                self.release(agents, by)
            else:
                self.take(order.get("action", FAIL_SAFE), agents, by)
        except Exception:  # whatever stands in it, somebody wanted something
            self.take(FAIL_SAFE, by="file that cannot be understood")

    def _tell(self, event: dict[str, Any]) -> None:
        if self.told is not None:
            self.told(event)


def _is_action(action: Any) -> bool:
    return isinstance(action, dict) and {"mode", "params"} <= action.keys()
