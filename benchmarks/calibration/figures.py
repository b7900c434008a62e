"""Table and pictures of docs/uav-mec.md, from the records that run.py wrote.

python benchmarks/calibration/figures.py
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from trident.envs.uav_mec.dynamics import backhaul_efficiency, uplink_rate
from trident.envs.uav_mec.env import UavMec
from trident.envs.uav_mec.physics import mode_costs
from trident.physics.propulsion import ROTORS, propulsion_power
from trident.report.palette import LIMIT, MODES, QUIET

HERE = Path(__file__).parent
IMAGES = HERE.parent.parent / "docs" / "img"
PAPER = {
    "random": (-10.39, 8.52, 95.1, 12.1, 42.3, 68.1),
    "greedy": (-7.21, 6.18, 78.2, 18.3, 31.2, 22.4),
}
COLUMNS = ("reward", "metric/exec", "metric/energy", "metric/throughput", "metric/ev", "metric/cv_all", "metric/cv")
MODE_COLUMNS = ("metric/local", "metric/fog1", "metric/fog2")


def records(kind: str) -> list[dict]:
    lines = (HERE / "uav-mec.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def cells(mean: dict) -> list[float]:
    return [100 * mean[k] if k in COLUMNS[4:] else mean[k] for k in COLUMNS]


def table() -> str:
    names = "policy|Reward|Exec (s)|Energy (J)|Through.|E.V. %|C.V. %|C.V. after grace %|local / fog1 / fog2"
    head = "| " + " | ".join(names.split("|")) + " |"
    lines = [head, "|---" * 9 + "|"]
    for row in records("policy"):
        values = cells(row["mean"])
        modes = " / ".join(f"{row['mean'][k]:.2f}" for k in MODE_COLUMNS)
        texts = [f"{v:.2f}" if i in (0, 1, 6) else f"{v:.1f}" for i, v in enumerate(values)]
        lines.append(f"| {row['policy']} | " + " | ".join(texts) + f" | {modes} |")
        if row["policy"] in PAPER:
            texts = [f"{v:.2f}" if i < 2 else f"{v:.1f}" for i, v in enumerate(PAPER[row["policy"]])]
            lines.append(f"| *paper's {row['policy'].capitalize()}* | " + " | ".join(texts) + " | | |")
    return "\n".join(lines)


def draw_scores(path: Path) -> None:
    rows = {row["policy"]: cells(row["mean"]) for row in records("policy")}
    names = list(rows)
    panels = [("reward per slot", 0), ("exec, s", 1), ("energy, J", 2), ("E.V., %", 4), ("C.V. after grace, %", 6)]
    fig, axes = plt.subplots(1, len(panels), figsize=(13, 3.6), sharey=True)
    for ax, (title, k) in zip(axes, panels, strict=True):
        values = [rows[n][k] for n in names]
        ax.barh(names, values, color=[MODES[1] if n.startswith("planner") else MODES[0] for n in names], height=0.62)
        for i, name in enumerate(names):
            if name in PAPER:
                ax.plot([PAPER[name][min(k, 5)]] * 2, [i - 0.4, i + 0.4], color="black", lw=2)
        ax.set_title(title, fontsize=10, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    axes[0].invert_yaxis()
    axes[3].axvline(1.0, color=LIMIT, ls="--", lw=1.2)
    axes[4].axvline(3.0, color=LIMIT, ls="--", lw=1.2)
    fig.text(0.005, 0.01, "black ticks: the paper's rows (C.V. over all slots); red lines: the limits", fontsize=8)
    fig.tight_layout(rect=(0, 0.03, 1, 1))
    fig.savefig(path, dpi=110)


def draw_physics(path: Path, env: UavMec) -> None:
    c = env.config
    fig, axes = plt.subplots(1, 4, figsize=(14.5, 3.7))
    speed = jnp.linspace(0.0, 30.0, 200)
    for name, colour in (("light", MODES[1]), ("zeng", QUIET)):
        axes[0].plot(speed, propulsion_power(speed, ROTORS[name]), color=colour, label=name)
    axes[0].axhline(c.energy_max / c.slot, color=LIMIT, ls="--", lw=1.2, label="E_max, flight alone")
    axes[0].set(title="propulsion power, W", xlabel="speed, m/s", ylim=(80, 380))
    axes[0].legend(fontsize=8, frameon=False)
    d = jnp.linspace(1.0, 500.0, 200)
    axes[1].plot(d, uplink_rate(c, d) / c.user_bandwidth, color=MODES[0], label="user to UAV")
    axes[1].plot(d, backhaul_efficiency(c, d), color=MODES[1], label="UAV to fog")
    axes[1].axvline(c.coverage_radius, color="#9aa5b1", ls=":", label="coverage, service radius")
    axes[1].axvline(c.service_radius, color="#9aa5b1", ls=":")
    axes[1].set(title="spectral efficiency, bit/s/Hz", xlabel="horizontal distance, m")
    axes[1].legend(fontsize=8, frameon=False)
    line = np.linspace(0.0, c.area, 121)
    x, y = np.meshgrid(line, line)
    places = jnp.asarray(np.stack([x.ravel(), y.ravel()], 1), jnp.float32)
    for ax, load in ((axes[2], 3), (axes[3], 6)):
        best = np.asarray(mode_costs(c, places, jnp.full(len(places), float(load)))).argmin(1).reshape(x.shape)
        ax.imshow(best, origin="lower", extent=(0, c.area, 0, c.area), cmap=ListedColormap(MODES[:3]), vmin=0, vmax=2)
        ax.set(title=f"best mode with {load} tasks", xlabel="m")
    for mode, name in enumerate(("local", "fog 1", "fog 2")):
        axes[3].plot([], [], "s", color=MODES[mode], label=name)
    axes[3].legend(fontsize=8, loc="upper left", framealpha=0.9)
    for ax in axes:
        ax.title.set_fontsize(10)
        ax.tick_params(labelsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def draw_frame(path: Path, env: UavMec, slots: int = 120) -> None:
    def run(key):
        state, _ = env.reset(key)

        def advance(state, key):
            k_act, k_step = jax.random.split(key)
            state = env.step(k_step, state, env.scripted["planner"](k_act, state))[0]
            return state, state

        return jax.lax.scan(advance, state, jax.random.split(key, slots))[1]

    states = jax.device_get(jax.jit(run)(jax.random.key(4)))
    fig = Figure(figsize=(10.5, 6.6), dpi=110)
    env.draw(fig, states, slots - 1)
    fig.savefig(path)


def main() -> None:
    env = UavMec()
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw_frame(IMAGES / "uav-mec-frame.png", env)
    draw_physics(IMAGES / "uav-mec-physics.png", env)
    draw_scores(IMAGES / "uav-mec-calibration.png")
    print(table())
    for row in records("physics"):
        print(f"physics under {row['policy']}: {row['r2']}")


if __name__ == "__main__":
    main()
