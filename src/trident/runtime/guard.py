"""The guarded policy: `decide(observations, stamps) -> actions, reasons`, whatever happens.

Arranged after run-time assurance practice (ASTM F3269, Simplex): the learned policy is the complex function that is not
trusted, the base policy and the fail-safe are what recovers. Every path ends in an allowed action; nothing raises.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trident.runtime import threefry
from trident.runtime.arbiter import Branch, choose
from trident.runtime.audit import Audit, plain
from trident.runtime.bundle import Bundle, open_bundle
from trident.runtime.inputs import InputLimits, InputManager, as_flags, as_floats, as_number, as_vector
from trident.runtime.message import Message, pack
from trident.runtime.monitor import Monitor, Thresholds
from trident.runtime.override import BASE_POLICY, FAIL_SAFE, Override

Policy = Callable[..., Mapping[str, np.ndarray]]
"""obs [1, N, O], mask [1, N, M], alive [1, N], key [1, 2] -> mode [1, N], params [1, N, P]"""


LABELS = tuple(branch.label for branch in Branch)


class Action(NamedTuple):
    mode: np.ndarray  # [N]
    params: np.ndarray  # [N, P]


class Reason(NamedTuple):
    branch: str
    """policy, shield, base policy, fail-safe, override or idle (the agent takes no part)."""
    why: str


class Decision(NamedTuple):
    action: Action
    reasons: tuple[Reason, ...]


@dataclass
class Counts:
    """Since the start, for metrics."""

    decisions: int = 0
    late: int = 0
    branches: np.ndarray | None = None  # [branches], agent-decisions


class Guard:
    def __init__(
        self,
        bundle: Bundle | str | Path,
        *,
        policy: Policy | None = None,
        audit: Audit | None = None,
        override_file: str | Path | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        **monitor: Any,
    ):
        """`policy` replaces the NumPy program by another backend; `monitor` overrides values of the manifest, e.g.
        deadline=0.02."""
        self.bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        programs, settings = self.bundle.programs, self.bundle.manifest["monitor"] | monitor
        self.space = self.bundle.space
        self.policy: Policy = policy or programs["policy"]
        self.deadline: float = settings["deadline"]
        self.inputs = InputManager(self.space, _filled(InputLimits, settings))
        self.monitor = Monitor(self.space, _filled(Thresholds, settings))
        self.audit, self.clock = audit, clock
        file = None if override_file is None else Path(override_file)
        self.override = Override(self.space.agents, self._log_event, file)
        self.counts = Counts(branches=np.zeros(len(Branch), np.int64))
        safe = self.bundle.manifest["fail_safe"]
        self._safe_modes, self._safe_params = np.array(safe["modes"]), np.asarray(safe["params"], np.float32)
        self._key = threefry.key_of(seed)
        self._seed = seed
        n = self.space.agents
        self._calm = np.full(n, self.monitor.thresholds.back, np.int64)
        self._mode = np.full(n, -1, np.int64)
        self._warm_up()
        if audit is not None:
            audit.event({"start": self.bundle.manifest["sha256"], "seed": seed, "monitor": plain(settings)})

    @property
    def safe_name(self) -> str:
        return str(self.bundle.manifest["fail_safe"].get("name", "fail-safe"))

    def _warm_up(self) -> None:
        """The first call of a program is the slowest by far; it should not be the first decision."""
        n, modes, _ = self.space.low.shape
        obs, mask = np.zeros((n, self.space.obs_dim), np.float32), np.ones((n, modes), bool)
        action, *_ = self._learned(obs, mask, np.ones(n, bool), None)
        self._base(obs, mask)
        if "foresee" in self.bundle.programs:
            shape = self.bundle.programs["foresee"].inputs["state"][0][1:]
            self._foreseen(np.zeros(shape), action)

    # --- the decision -----------------------------------------------------------------------------

    def decide(
        self,
        observations: Any,
        stamps: Any = None,
        *,
        sequence: Any = None,
        mask: Any = None,
        alive: Any = None,
        margin: Any = None,
        cost: Any = None,
        state: Any = None,
        env_state: Any = None,
        now: float | None = None,
        elapsed: float | None = None,
    ) -> Decision:
        """One action for every agent.

        `observations`: [N, O], or {agent: [O]} of those that were heard. `stamps`: when they were made, in seconds of
        the guard's clock (one number for all, [N] or a mapping); `sequence`: their running numbers. Optional: which
        modes are allowed [N, M] and who takes part [N]; `margin` [K] and `cost` [K] of the last step, as measured; the
        global `state` [S], with which physics looks ahead; `env_state`, a mapping of arrays, which a shield needs.
        `now` and `elapsed` (what the policy took) are measured unless given.
        """
        message = Message(observations, stamps, sequence, mask, alive, margin, cost, state, env_state)
        begun = time.perf_counter()
        asked = as_number(self.clock() if now is None else now)
        now = asked if asked is not None else self.inputs.now if math.isfinite(self.inputs.now) else 0.0
        self.override.poll()
        orders = dict(self.override.orders)
        decision, took = self._decide(message, orders, now, elapsed)
        self.counts.decisions += 1
        if self.audit is not None:
            self.audit.decision(
                pack(message, self.space), decision, plain({str(k): v for k, v in orders.items()}), now, took,
                time.perf_counter() - begun,
            )  # fmt: skip
        return decision

    def _decide(
        self, message: Message, orders: dict[int, Any], now: float, elapsed: float | None
    ) -> tuple[Decision, float]:
        n, modes = self.space.low.shape[:2]
        obs, usable, faults = self.inputs.accept(message.observations, message.stamps, message.sequence, now)
        whys = [f"observation {fault}" + (", the last one held" if ok else "") if fault else ""
                for fault, ok in zip(faults, usable, strict=True)]  # fmt: skip
        mask = np.ones((n, modes), bool) if message.mask is None else as_flags(message.mask, (n, modes))
        living = np.ones(n, bool) if message.alive is None else as_flags(message.alive, (n,))
        usable = usable & self._check_flags(mask, living, whys)
        mask = np.ones((n, modes), bool) if mask is None else mask | ~mask.any(axis=1, keepdims=True)
        living = np.ones(n, bool) if living is None else living

        safe = self.fail_safe(mask)
        begun = time.perf_counter()
        learned, fine, changed, trouble = self._learned(obs, mask, living & usable, message.env_state)
        took = time.perf_counter() - begun if elapsed is None else elapsed
        late = not took <= self.deadline
        self.counts.late += late
        trusted = self._trust(obs, usable, living, message, learned, whys)
        if trouble:
            _note(whys, trouble)
        if late:
            _note(whys, f"late: {1e3 * took:.1f} ms of {1e3 * self.deadline:g}")
            self._calm[:] = 0
        needed = bool(orders) or late or not (trusted & fine)[living].all()
        base, base_fine = self._base(obs, mask) if needed else (safe, np.zeros(n, bool))
        ordered, order = self._ordered(orders, mask, safe, base, base_fine)
        branch = choose(ordered, living, usable, trusted & ~np.bool_(late), fine, changed, base_fine & ~np.bool_(late))
        cases = [order, safe, learned, learned, base, safe]
        mode, params = self._merge(branch, cases)
        self._mode = np.where(living, mode, self._mode)
        assert self.counts.branches is not None
        self.counts.branches += np.bincount(branch, minlength=len(Branch))
        reasons = tuple(Reason(LABELS[b], self._why(b, why)) for b, why in zip(branch.tolist(), whys, strict=True))
        return Decision(Action(mode, params), reasons), took

    def _merge(self, branch: np.ndarray, cases: list[Action]) -> tuple[np.ndarray, np.ndarray]:
        mode, params = cases[0].mode.copy(), cases[0].params.copy()
        for code, case in enumerate(cases[1:], 1):
            rows = branch == code
            if rows.any():
                mode[rows], params[rows] = case.mode[rows], case.params[rows]
        return mode, params

    def _why(self, branch: int, why: str) -> str:
        if branch == Branch.SHIELD:
            return "changed by the shield" + (f"; {why}" if why else "")
        if branch == Branch.IDLE:
            return "takes no part"
        if branch == Branch.OVERRIDE:
            return "a human's order"
        if branch in (Branch.BASE_POLICY, Branch.FAIL_SAFE) and not why:
            return "on the way back"
        return why

    def _check_flags(self, mask: np.ndarray | None, living: np.ndarray | None, whys: list[str]) -> np.ndarray:
        """Whom the mask and `alive` leave something to act on [N]."""
        if mask is None or living is None:
            _note(whys, "mask of the wrong shape" if mask is None else "alive of the wrong shape")
            return np.zeros(len(whys), bool)
        has = np.asarray(mask.any(axis=1))
        for i in np.flatnonzero(~has):
            whys[i] = whys[i] or "no mode is allowed"
        return has

    # --- the candidates ---------------------------------------------------------------------------

    def fail_safe(self, mask: np.ndarray) -> Action:
        """What the environment declared: the first mode in its order of preference that is allowed."""
        n = len(mask)
        order = np.repeat(self._safe_modes[None], n, axis=0)
        if self.bundle.manifest["fail_safe"]["keep_mode"]:
            first = np.where(self._mode >= 0, self._mode, order[:, 0])
            order = np.concatenate([first[:, None], order], axis=1)
        allowed = np.take_along_axis(mask, order, axis=1)
        mode = order[np.arange(n), allowed.argmax(axis=1)].astype(np.int32)
        mode = np.where(allowed.any(axis=1), mode, mask.argmax(axis=1)).astype(np.int32)
        return Action(mode, self._safe_params[mode])

    def _learned(
        self, obs: np.ndarray, mask: np.ndarray, alive: np.ndarray, env_state: Any
    ) -> tuple[Action, np.ndarray, np.ndarray, str]:
        """The policy's action behind its shield: (action, allowed [N], changed by the shield [N], what went wrong)."""
        n, nothing = len(mask), np.zeros(len(mask), bool)
        key = threefry.fold_in(self._key, np.asarray(self.counts.decisions & 0xFFFFFFFF))
        try:
            out = self.policy(obs=obs[None], mask=mask[None], alive=alive[None], key=key[None])
            action, changed = _action(out), nothing
            if self.bundle.manifest["shielded"]:
                if env_state is None:
                    return self.fail_safe(mask), nothing, nothing, "no state for the shield"
                action, changed = self._shielded(action, env_state)
            action, fine = self._allowed(action, mask)
            return action, fine, changed, "" if fine[alive].all() else "the policy's action is not allowed"
        except Exception as error:  # a policy that fails is a policy that is not used
            idle = Action(np.zeros(n, np.int32), np.zeros((n, self.space.low.shape[2]), np.float32))
            return idle, nothing, nothing, f"the policy failed ({type(error).__name__})"

    def _shielded(self, action: Action, env_state: Any) -> tuple[Action, np.ndarray]:
        shield = self.bundle.programs["shield"]
        names = [name for name in shield.inputs if name not in ("mode", "params")]
        short = {name: name if name in env_state else name.removeprefix("state.") for name in names}
        rows = {name: np.asarray(env_state[short[name]])[None] for name in names}
        out = shield(mode=action.mode[None], params=action.params[None], **rows)
        return _action(out), np.asarray(out["changed"][0], bool)

    def _base(self, obs: np.ndarray, mask: np.ndarray) -> tuple[Action, np.ndarray]:
        """The base policy's action and whether it is allowed; computed from the same observations."""
        program, n = self.bundle.programs.get("base_policy"), len(mask)
        if program is None:
            return self.fail_safe(mask), np.zeros(n, bool)
        try:
            return self._allowed(_action(program(obs=obs[None], mask=mask[None])), mask)
        except Exception:
            return self.fail_safe(mask), np.zeros(n, bool)

    def _allowed(self, action: Action, mask: np.ndarray) -> tuple[Action, np.ndarray]:
        """Whether the mode is allowed and the parameters are inside their box, but for rounding (which is cut off)."""
        n, modes = mask.shape
        mode, params = action
        inside = (mode >= 0) & (mode < modes)
        mode = np.where(inside, mode, 0).astype(np.int32)
        rows = np.arange(n), mode
        low, high, used = self.space.low[rows], self.space.high[rows], self.space.used[rows]
        slack = 1e-5 * np.maximum(high - low, 1.0)
        with np.errstate(invalid="ignore"):
            fits = (params >= low - slack) & (params <= high + slack) & np.isfinite(params)
        fine = inside & mask[rows] & (fits | ~used).all(axis=1)
        clipped = np.clip(np.where(fits, params, low), low, high)
        return Action(mode, np.where(used, clipped, 0.0).astype(np.float32)), fine

    def _ordered(
        self, orders: dict[int, Any], mask: np.ndarray, safe: Action, base: Action, base_fine: np.ndarray
    ) -> tuple[np.ndarray, Action]:
        """Whom a human has taken over [N] and what they do; an order that is not allowed becomes the fail-safe."""
        taken, mode, params = np.zeros(len(mask), bool), safe.mode.copy(), safe.params.copy()
        for agent, order in orders.items():
            taken[agent] = True
            if order == BASE_POLICY and base_fine[agent]:
                mode[agent], params[agent] = base.mode[agent], base.params[agent]
            elif order not in (FAIL_SAFE, BASE_POLICY):
                wish, values = as_number(order["mode"]), as_floats(order["params"])
                if wish is None or values is None or values.shape != params[agent].shape or wish != int(wish):
                    continue
                modes, rows = mode.copy(), params.copy()
                modes[agent], rows[agent] = int(wish) if abs(wish) < 2**31 else -1, values
                action, fine = self._allowed(Action(modes, rows), mask)
                if fine[agent]:
                    mode[agent], params[agent] = action.mode[agent], action.params[agent]
        return taken, Action(mode, params)

    # --- trust ------------------------------------------------------------------------------------

    def _trust(
        self, obs: np.ndarray, usable: np.ndarray, living: np.ndarray, message: Message, learned: Action,
        whys: list[str],
    ) -> np.ndarray:  # fmt: skip
        """Whether the monitor lets the policy act, for every agent. On the way back it waits for `back` calm steps."""
        k = len(self.monitor.thresholds.limits)
        self.monitor.spend(None if message.cost is None else as_vector(message.cost, k))
        margin = None if message.margin is None else as_vector(message.margin, k)
        danger = self.monitor.danger(margin, self._foreseen(message.state, learned))
        if danger:
            _note(whys, danger)
        strange = self.monitor.strange(obs) & usable
        for i in np.flatnonzero(strange & living):
            whys[i] = whys[i] or "unlike anything recorded"
        calm = usable & ~strange & (not danger)
        counted = np.where(calm, np.minimum(self._calm + 1, 2**31), 0)
        self._calm = np.where(living, counted, self._calm)
        return calm & (self._calm > self.monitor.thresholds.back)

    def _foreseen(self, state: Any, learned: Action) -> np.ndarray | None:
        """Costs [steps ahead, K] that physics expects of this action and then of its nominal controller."""
        program = self.bundle.programs.get("foresee")
        if program is None or state is None:
            return None
        array = as_vector(state, program.inputs["state"][0][1])
        if array is None:
            return None
        return program(state=array[None], mode=learned.mode[None], params=learned.params[None])["cost"][0]

    def _log_event(self, event: dict[str, Any]) -> None:
        if self.audit is not None:
            self.audit.event(plain(event))


def _action(out: Mapping[str, np.ndarray]) -> Action:
    with np.errstate(invalid="ignore"):  # what is no number is no mode either
        return Action(np.asarray(out["mode"][0]).astype(np.int32), np.asarray(out["params"][0], np.float32))


def _note(whys: list[str], text: str) -> None:
    for i, why in enumerate(whys):
        whys[i] = why or text


def _filled(kind: Any, settings: Mapping[str, Any]) -> Any:
    names = kind.__dataclass_fields__
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in settings.items() if k in names})
