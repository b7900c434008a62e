"""The guard: every way to an action, worked by hand; then ten thousand messages of nonsense."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal

import numpy as np
import pytest
from support import bundles

from trident.runtime import Audit, Guard, replay
from trident.runtime.arbiter import Branch, choose

CALM = np.array([[1.0, 0.5, 0.2, 0.0], [-1.0, 0.0, -0.4, 0.0], [0.5, -0.5, 0.0, 0.0]])
LEARNED = ([1, 0, 1], np.tanh(2.0 * CALM[:, 1]))
BASE = ([0, 0, 0], 0.5 * CALM[:, 2])
SAFE = ([0, 0, 0], np.full(3, -0.5))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return bundles.make(tmp_path_factory.mktemp("guard") / "toy")


@pytest.fixture(scope="module")
def shielded(tmp_path_factory):
    return bundles.make(tmp_path_factory.mktemp("guard") / "shielded", shielded=True)


class Clock:
    """Time that stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def guarded(bundle, **changes):
    clock = Clock()
    guard = Guard(bundle, clock=clock, **changes)
    return guard, clock


def does(decision, wanted, agents=(0, 1, 2)):
    action, _ = decision
    modes, params = wanted
    return all(action.mode[i] == modes[i] and abs(action.params[i, 0] - params[i]) < 1e-6 for i in agents)


def branches(decision):
    return [reason.branch for reason in decision.reasons]


# --- who acts -------------------------------------------------------------------------------------


def test_every_state_has_one_branch_and_rank_decides():
    names = ("ordered", "alive", "usable", "trusted", "policy", "changed", "base")
    for values in itertools.product([False, True], repeat=len(names)):
        s = dict(zip(names, values, strict=True))
        if s["ordered"]:
            wanted = Branch.OVERRIDE
        elif not s["alive"]:
            wanted = Branch.IDLE
        elif not s["usable"]:
            wanted = Branch.FAIL_SAFE
        elif s["trusted"] and s["policy"]:
            wanted = Branch.SHIELD if s["changed"] else Branch.POLICY
        else:
            wanted = Branch.BASE_POLICY if s["base"] else Branch.FAIL_SAFE
        assert choose(*(np.array([v]) for v in values))[0] == wanted, s


def test_when_all_is_well_the_policy_acts(bundle):
    guard, _ = guarded(bundle)
    decision = guard.decide(CALM)
    assert branches(decision) == ["policy"] * 3
    assert does(decision, LEARNED)


BAD_ROWS = {
    "observation missing": None,
    "observation wrong shape": [1.0, 2.0],
    "observation not finite": [1.0, math.nan, 0.0, 0.0],
    "observation out of range": [1.0, 1e6, 0.0, 0.0],
}


@pytest.mark.parametrize(("why", "row"), BAD_ROWS.items())
def test_an_agent_without_an_observation_is_safe_and_the_others_fly_on(bundle, why, row):
    guard, _ = guarded(bundle)
    decision = guard.decide({0: CALM[0], 1: row, 2: CALM[2]})
    assert branches(decision) == ["policy", "fail-safe", "policy"]
    assert decision.reasons[1].why == why
    assert does(decision, LEARNED, (0, 2))
    assert does(decision, SAFE, (1,))


def test_a_missing_observation_is_stood_in_for_until_it_is_too_old(bundle):
    guard, clock = guarded(bundle)
    guard.decide(CALM)
    others = {0: CALM[0], 2: CALM[2]}
    clock.now += 0.9
    held = guard.decide(others)
    assert branches(held) == ["policy"] * 3
    assert held.reasons[1].why == "observation missing, the last one held"
    assert does(held, LEARNED)
    clock.now += 0.2
    assert branches(guard.decide(others))[1] == "fail-safe"
    assert [branches(guard.decide(CALM))[1] for _ in range(3)] == ["base policy", "base policy", "policy"]


def test_stamps_and_numbers_must_be_in_order(bundle):
    guard, clock = guarded(bundle)
    why = lambda **given: guard.decide(CALM, **given).reasons[0].why  # noqa: E731
    assert why(stamps=clock.now, sequence=[5, 5, 5]) == ""
    clock.now += 0.4
    assert why(stamps=clock.now, sequence=[5, 6, 6]) == "observation out of order, the last one held"
    assert why(stamps=clock.now - 0.1, sequence=[7, 7, 7]) == ""
    assert "out of order" in why(stamps=clock.now - 0.2, sequence=[8, 8, 8])
    clock.now += 2.0
    assert why(stamps=clock.now - 0.6, sequence=[9, 9, 9]) == "observation stale"
    assert why(stamps=clock.now + 0.2, sequence=[9, 9, 9]) == "observation from the future"
    assert why(stamps=math.nan, sequence=[9, 9, 9]) == "observation bad stamp"


def test_a_sender_that_starts_anew_is_heard_again(bundle):
    guard, _ = guarded(bundle)
    guard.decide(CALM, sequence=[1000] * 3)
    heard = ["out of order" in guard.decide(CALM, sequence=[k] * 3).reasons[0].why for k in range(5)]
    assert heard == [True, True, True, False, False]


def test_a_clock_that_jumps_back_is_one_step_of_caution(bundle):
    guard, clock = guarded(bundle)
    guard.decide(CALM)
    clock.now -= 50.0
    jumped = guard.decide(CALM)
    assert branches(jumped) == ["fail-safe"] * 3
    assert jumped.reasons[0].why == "observation the clock jumped back"
    assert [branches(guard.decide(CALM))[0] for _ in range(3)] == ["base policy", "base policy", "policy"]


def test_what_nobody_has_seen_is_not_for_the_policy(bundle):
    guard, _ = guarded(bundle)
    strange = CALM.copy()
    strange[1, 3] = 3.0  # recorded: -1 to 1; a range and a half of it beyond, and not out of reach
    decision = guard.decide(strange)
    assert branches(decision) == ["policy", "base policy", "policy"]
    assert decision.reasons[1].why == "unlike anything recorded"
    assert does(decision, BASE, (1,))


def test_margins_costs_and_foresight_are_the_whole_teams(bundle):
    guard, _ = guarded(bundle)
    assert branches(guard.decide(CALM, margin=[0.1, 0.1])) == ["policy"] * 3
    low = guard.decide(CALM, margin=[0.1, -0.1])
    assert branches(low) == ["base policy"] * 3
    assert low.reasons[0].why == "margin 1 is too small"
    assert does(low, BASE)
    back = [guard.decide(CALM, margin=[0.1, 0.1]) for _ in range(3)]
    assert [branches(d)[0] for d in back] == ["base policy", "base policy", "policy"]
    assert back[0].reasons[0].why == "on the way back"
    ahead = guard.decide(CALM, state=[0.0, 2.5])
    assert (branches(ahead)[0], ahead.reasons[0].why) == ("base policy", "cost 1 is foreseen")


def test_a_budget_that_is_spent_stays_spent_until_it_has_come_back_far_enough(bundle):
    guard, _ = guarded(bundle)
    taken = []
    for cost in [0.9, 0.9, *[0.0] * 14]:  # limit 0.1 over a window of 10: 1.0 in all; released below 0.5
        taken.append(branches(guard.decide(CALM, cost=[cost, 0.0]))[0])
    over = (
        10  # the second 0.9 is the first step above; the first of them leaves the window 10 steps later, at 0.9 > 0.5
    )
    assert taken[:1] == ["policy"]
    assert taken[1 : 1 + over] == ["base policy"] * over
    assert taken[-3:] == ["policy"] * 3


def test_a_late_policy_is_not_waited_for_a_second_time(bundle):
    guard, _ = guarded(bundle)
    late = guard.decide(CALM, elapsed=31.0)
    assert branches(late) == ["fail-safe"] * 3
    assert late.reasons[0].why == "late: 31000.0 ms of 30000"
    after = [branches(guard.decide(CALM, elapsed=0.0))[0] for _ in range(3)]
    assert after == ["base policy", "base policy", "policy"]
    assert branches(guard.decide(CALM, elapsed=math.nan)) == ["fail-safe"] * 3


def test_a_policy_that_fails_or_asks_for_the_impossible_is_replaced(bundle):
    wild = CALM.copy()
    wild[0, 3] = 4.5
    guard, _ = guarded(bundle, novelty=100.0)
    decision = guard.decide(wild)
    assert branches(decision) == ["base policy", "policy", "policy"]
    assert decision.reasons[0].why == "the policy's action is not allowed"

    def broken(**_):
        raise RuntimeError("no")

    for policy in (
        broken,
        lambda **_: {},
        lambda **_: {"mode": np.full((1, 3), np.nan), "params": np.zeros((1, 3, 1))},
    ):
        guard, _ = guarded(bundle, policy=policy)
        assert branches(guard.decide(CALM)) == ["base policy"] * 3


def test_without_a_base_policy_there_is_the_fail_safe(tmp_path):
    guard, _ = guarded(bundles.make(tmp_path / "toy", without=("base_policy", "foresee")))
    low = guard.decide(CALM, margin=[-1.0, 1.0], state=[0.0, 0.0])
    assert branches(low) == ["fail-safe"] * 3
    assert does(low, SAFE)


def test_masks_and_the_dead(bundle):
    guard, _ = guarded(bundle)
    mask = np.array([[True, False], [False, True], [False, False]])
    decision = guard.decide(CALM, mask=mask)
    assert decision.action.mode[:2].tolist() == [0, 1]
    assert decision.reasons[2] == ("fail-safe", "no mode is allowed")
    dead = guard.decide(CALM, alive=[True, False, True])
    assert branches(dead)[1] == "idle"
    assert does(dead, SAFE, (1,))
    for wrong in ({"alive": [True, True]}, {"mask": np.ones((3, 5), bool)}, {"mask": "all"}):
        assert branches(guard.decide(CALM, **wrong)) == ["fail-safe"] * 3


def test_the_shield_is_applied_and_needs_its_state(shielded):
    guard, _ = guarded(shielded)
    capped = guard.decide(CALM, env_state={"cap": 0.3})
    assert branches(capped) == ["shield", "policy", "policy"]
    assert capped.action.params[0, 0] == pytest.approx(0.3)
    assert capped.reasons[0].why == "changed by the shield"
    blind = guard.decide(CALM)
    assert branches(blind) == ["base policy"] * 3
    assert blind.reasons[0].why == "no state for the shield"
    assert branches(guard.decide(CALM, env_state={"cup": 1}))[0] == "base policy"


# --- a human's hand -------------------------------------------------------------------------------


def test_an_order_wins_at_once_and_stays_until_it_is_released(bundle):
    guard, _ = guarded(bundle)
    guard.override.take(agents=[1], by="Ada")
    decision = guard.decide(CALM)
    assert branches(decision) == ["policy", "override", "policy"]
    assert does(decision, SAFE, (1,))
    guard.override.take({"mode": 1, "params": [0.25]}, agents=[2])
    guard.override.take("base policy", agents=[0])
    decision = guard.decide({}, mask=np.ones((3, 2), bool))  # nothing else works: a hand still does
    assert branches(decision) == ["override"] * 3
    assert (decision.action.mode[2], decision.action.params[2, 0]) == (1, 0.25)
    guard.override.release()
    assert "override" not in branches(guard.decide(CALM))


@pytest.mark.parametrize("order", [
    {"mode": 7, "params": [0.0]}, {"mode": 0, "params": [3.0]}, {"mode": 0, "params": "up"}, "jump", 17,
    {"mode": None, "params": []}, {"mode": 1e40, "params": [0.0]}, {"mode": 0, "params": [math.nan]},
])  # fmt: skip
def test_an_order_that_cannot_be_obeyed_is_the_fail_safe(bundle, order):
    guard, _ = guarded(bundle)
    guard.override.take(order)
    decision = guard.decide(CALM)
    assert branches(decision) == ["override"] * 3
    assert does(decision, SAFE)


def test_orders_by_file_and_by_signal(bundle, tmp_path):
    file = tmp_path / "order.json"
    guard, _ = guarded(bundle, override_file=file)
    taken = lambda: branches(guard.decide(CALM)) == ["override"] * 3  # noqa: E731
    assert not taken()
    file.write_text('{"action": "fail-safe", "by": "Ada"}')
    assert taken()
    file.unlink()
    assert taken(), "deleting the file releases nothing"
    file.write_text('{"release": true, "by": "Ada"}')
    assert not taken()
    file.write_text("stop!!!")
    assert taken(), "who writes nonsense into it wanted something"
    file.write_text('{"release": true}')
    assert not taken()
    before = [signal.getsignal(s) for s in (signal.SIGUSR1, signal.SIGUSR2)]
    try:
        guard.override.listen()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert taken()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert not taken()
    finally:
        for number, handler in zip((signal.SIGUSR1, signal.SIGUSR2), before, strict=True):
            signal.signal(number, handler)


# --- ten thousand messages ------------------------------------------------------------------------


class Trap:
    """An object that fails however it is looked at."""

    def __len__(self):
        raise RuntimeError

    def __array__(self, *_, **__):
        raise RuntimeError

    def __float__(self):
        raise RuntimeError


NONSENSE = [
    None, "x", b"\x00", math.nan, math.inf, -math.inf, 10**400, -1, {}, [], [[]], {"0": "a"}, Trap(), True, object(),
    np.zeros((0, 4)), np.full((3, 4), np.nan), [[1, 2], [3]], {0: None, 1: Trap()}, 1j, np.array("a"), [Trap()] * 3,
]  # fmt: skip


def nonsense(rng):
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    junk = lambda: pick(*NONSENSE)  # noqa: E731
    rows = CALM + rng.normal(scale=pick(0.0, 0.1, 1.0, 1e4), size=CALM.shape)
    obs = pick(rows, {i: r for i, r in enumerate(rows) if rng.random() < 0.7}, junk(), [pick(r, junk()) for r in rows])
    given = {
        "stamps": pick(None, junk(), 100.0 + rng.normal(), list(100.0 + rng.normal(size=3))),
        "sequence": pick(None, junk(), rng.integers(-5, 50, 3), [1, 2, junk()]),
        "mask": pick(None, junk(), rng.random((3, 2)) < 0.6), "alive": pick(None, junk(), rng.random(3) < 0.7),
        "margin": pick(None, junk(), rng.normal(size=2)), "cost": pick(None, junk(), rng.random(2)),
        "state": pick(None, junk(), rng.normal(size=2)),
        "env_state": pick(None, junk(), {"cap": rng.normal()}, {"cap": "x"}),
        "now": pick(None, None, junk(), 100.0 + rng.normal()),
    }  # fmt: skip
    return obs, given


def allowed(bundle, action, mask):
    """Inside the box, of a mode that is allowed wherever any is."""
    space = bundle.space
    assert action.mode.shape == (3,)
    assert np.isin(action.mode, range(len(space.modes))).all()
    rows = np.arange(3), action.mode
    assert ((space.low[rows] <= action.params) & (action.params <= space.high[rows])).all()
    if isinstance(mask, np.ndarray) and mask.shape == (3, 2) and mask.dtype == bool:
        assert (mask[rows] | ~mask.any(1)).all()


@pytest.mark.parametrize("kind", ["plain", "shielded"])
def test_ten_thousand_messages_of_nonsense(bundle, shielded, kind):
    bundle = bundle if kind == "plain" else shielded
    rng = np.random.default_rng(3)
    guard, clock = guarded(bundle)
    for i in range(5_000):
        obs, given = nonsense(rng)
        clock.now += rng.exponential(0.05)
        if i % 500 == 0:
            guard.override.take(NONSENSE[i // 500 % len(NONSENSE)], agents=[i // 500 % 3])
        if i % 500 == 50:
            guard.override.release()
        action, reasons = guard.decide(obs, **given)
        allowed(bundle, action, given["mask"])
        assert len(reasons) == 3
    guard.override.release()
    clock.now += 1000.0
    calm = {} if kind == "plain" else {"env_state": {"cap": 9.0}}
    after = [branches(guard.decide(CALM, cost=[0.0, 0.0], **calm))[0] for _ in range(20)]
    assert after[-1] == "policy", "no state is a trap"


@pytest.mark.parametrize("kind", ["plain", "shielded"])
def test_nonsense_is_replayed_bit_for_bit(bundle, shielded, kind, tmp_path):
    bundle = bundle if kind == "plain" else shielded
    rng = np.random.default_rng(4)
    guard, clock = guarded(bundle, audit=Audit(tmp_path / "log"))
    for _ in range(300):
        obs, given = nonsense(rng)
        clock.now += rng.exponential(0.05)
        guard.decide(obs, **given)
    assert replay(tmp_path / "log", bundle) == (300, [])


def test_reasons_are_text_that_json_can_carry(bundle):
    guard, _ = guarded(bundle)
    assert json.loads(json.dumps([list(r) for r in guard.decide(CALM).reasons])) == [["policy", ""]] * 3
