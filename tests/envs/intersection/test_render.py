"""Frames of a junction explain themselves."""

import jax
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trident.envs.intersection.env import Intersection


def test_every_sign_is_named_agents_count_from_one_and_the_map_has_a_scale():
    env = Intersection()
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    states = jax.tree.map(lambda x: np.asarray(x)[None], state)
    fig = Figure()
    env.draw(fig, states, 0)
    plan, speeds, gaps, vehicles = fig.axes
    named = " ".join(text.get_text() for text in plan.get_legend().get_texts())
    for word in ("turns left", "straight", "turns right", "needs to stop", "shield acts", "crashed", "within 0.5 s"):
        assert word in named
    assert "20 m" in [text.get_text() for text in plan.texts]
    assert "m/s" in speeds.get_title(loc="left")
    assert gaps.get_title(loc="left").endswith(", s")
    assert [t.get_text() for t in vehicles.get_yticklabels()] == [str(i) for i in range(1, 9)]
    FigureCanvasAgg(fig).draw()
