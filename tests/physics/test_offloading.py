"""Association invariants, and latencies and energies worked by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trident.physics import offloading as off

RADIUS, CAPACITY, N, U = 260.0, 3, 3, 8
matched = jax.jit(lambda d: off.associate(d, RADIUS, CAPACITY, 2))
matched_once = jax.jit(lambda d: off.associate(d, RADIUS, CAPACITY, 1))
matched_long = jax.jit(lambda d: off.associate(d, RADIUS, CAPACITY, 3))
# a coarse grid of lengths makes ties and borderline distances common
lengths = st.lists(st.integers(0, 30), min_size=N * U, max_size=N * U)


def table(ints):
    return np.asarray(ints, np.float32).reshape(N, U) * 10.0


def one_by_one(d, rounds):
    """The same rule by sorting and loops."""
    link = np.zeros(d.shape, bool)
    for _ in range(rounds):
        free = CAPACITY - link.sum(1)
        requests = []
        for u in range(d.shape[1]):
            options = [i for i in range(d.shape[0]) if d[i, u] <= RADIUS and free[i] > 0]
            if options and not link[:, u].any():
                i = min(options, key=lambda i, u=u: d[i, u])
                requests.append((d[i, u], u, i))
        for _, u, i in sorted(requests):
            if free[i] > 0:
                link[i, u] = True
                free[i] -= 1
    return link


@settings(max_examples=150, deadline=None)
@given(lengths)
def test_association_equals_the_loop(ints):
    d = table(ints)
    np.testing.assert_array_equal(matched(d), one_by_one(d, 2))


@settings(max_examples=100, deadline=None)
@given(lengths)
def test_association_invariants(ints):
    d = table(ints)
    once, link, long = (np.asarray(f(d)) for f in (matched_once, matched, matched_long))
    assert (link.sum(0) <= 1).all()
    assert (link.sum(1) <= CAPACITY).all()
    assert (d[link] <= RADIUS).all()
    # nearest first: whoever a UAV turned away in the first round is no nearer than those it took
    nearest = d.argmin(0)
    for i in range(N):
        away = (nearest == i) & ~once.any(0) & (d[i] <= RADIUS)
        if away.any():
            assert once[i].sum() == CAPACITY
            assert d[i, once[i]].max() <= d[i, away].min()
    # with as many rounds as UAVs nobody is left out beside a free place
    left = ~long.any(0)
    assert not (left & ((d <= RADIUS) & (long.sum(1) < CAPACITY)[:, None]).any(0)).any()


def test_latency_by_hand():
    """6 Mbit, 120 cycles/bit = 0.72 gigacycles."""
    up, here, there = jnp.array([0.05]), jnp.array([0.2]), jnp.array([0.1])
    ratio, overhead = jnp.array([0.25]), jnp.array([0.03])
    assert float(off.sequential_latency(up, here, there, ratio, overhead)[0]) == pytest.approx(0.255)
    assert float(off.parallel_latency(up, here, there, ratio, overhead)[0]) == pytest.approx(0.2)
    assert float(off.compute_time(jnp.array([6.0]), jnp.array([120.0]), 3.5)[0]) == pytest.approx(0.72 / 3.5)


def test_energy_by_hand():
    """kappa f^3 = 22.3 W of a busy 3.5 GHz core, for 0.72 / 3.5 s."""
    assert float(off.compute_energy(jnp.array([0.72]), 3.5, 5.2e-28)[0]) == pytest.approx(4.586, abs=2e-3)
    watt = 5.2e-28 * 3.5e9**3
    assert watt == pytest.approx(22.3, abs=0.05)


def test_shared_machines():
    np.testing.assert_allclose(off.shared_speed(16.0, 8, jnp.array([0.0, 8.0, 16.0])), [16.0, 16.0, 8.0])
