"""TRIDENT's discrete-gradient estimators on SMAC maps: what an update costs, and what it learns.

    python benchmarks/smac/estimators.py                     all parts; one JSON object per line in estimators.jsonl
    python benchmarks/smac/estimators.py --parts cost
    python benchmarks/smac/estimators.py --show              the tables of the record

Cost: operations of one round's update (XLA's count, loops multiplied out). Learning: the mode's gradient comes through
the critics alone (source=pathwise), so that nothing but the estimator differs; every estimator starts from the same
networks, battles and random numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from trident.bench.flops import count_flops
from trident.bench.round_speed import learning_of, round_shapes
from trident.report.tables import markdown
from trident.simulation.evaluate import evaluate, summarise
from trident.training.loop import policy_of, program
from trident.training.registry import default_config, make_algorithm, make_env
from trident.training.session import enable_compilation_cache
from trident.types import Algorithm, Env

HERE = Path(__file__).parent
ESTIMATORS = ("stgc", "stgc-paper", "gs", "exact")
COUNTED = ("3m", "27m_vs_30m")


def learner(env: Env, estimator: str, **changes: object) -> Algorithm:
    return make_algorithm(
        "trident",
        env,
        config=replace(default_config("trident", env), base_policy=False, estimator=estimator, **changes),
    )


def cost(options: argparse.Namespace) -> Iterator[dict]:
    for name in COUNTED:
        env = make_env(f"smac-{name}")
        for estimator in options.estimators:
            algorithm = learner(env, estimator, source=options.source)
            shapes = round_shapes(env, algorithm)
            flops = count_flops(learning_of(algorithm), shapes.algo, shapes.data)
            yield {"kind": "cost", "map": name, "modes": env.spec.action.num_modes, "estimator": estimator,
                   "source": options.source, "flops": flops}  # fmt: skip


def learning(options: argparse.Namespace) -> Iterator[dict]:
    enable_compilation_cache()
    env = make_env(f"smac-{options.map}")
    for estimator in options.estimators:
        algorithm = learner(env, estimator, source=options.source)
        size = algorithm.plan.envs * algorithm.plan.steps
        rounds = -(-options.episodes * env.spec.horizon // size)
        run = program(env, algorithm, rounds)
        keys = jax.random.split(jax.random.key(options.seed), options.seeds)
        state = jax.jit(jax.vmap(run.init))(keys)
        began = time.process_time()
        go = jax.jit(jax.vmap(run.round, (0, None)), donate_argnums=0).lower(state, jnp.int32(0)).compile()
        compiling, spent, history = time.process_time() - began, [], []
        for index in range(rounds):
            began = time.process_time()
            state, metrics = jax.block_until_ready(go(state, jnp.int32(index)))
            spent.append(time.process_time() - began)
            seen = {k: np.asarray(metrics[k], float) for k in ("reward", "metric/win", "metric/ended", "kl")}
            won = seen["metric/win"] / np.maximum(seen["metric/ended"], 1e-12)
            history.append({"reward": seen["reward"].tolist(), "win": won.tolist(), "kl": seen["kl"].tolist()})
            print(f"{estimator} {index + 1}/{rounds} {spent[-1]:.1f} s {history[-1]}", flush=True)
        found = _evaluate(env, algorithm, state.algo, options)
        yield {"kind": "learning", "map": options.map, "source": options.source, "estimator": estimator,
               "seeds": options.seeds, "rounds": rounds, "env_steps": rounds * size,
               "round_cpu_s": float(np.median(spent) / options.seeds), "compile_cpu_s": compiling,
               "evaluation": found, "history": history}  # fmt: skip


def _evaluate(env: Env, algorithm: Algorithm, states: object, options: argparse.Namespace) -> list[dict]:
    """Deterministic policies on fresh battles, one summary per seed."""

    def one(state, key):
        return evaluate(env, policy_of(env, algorithm, state, deterministic=True), key, options.battles)

    keys = jax.random.split(jax.random.key(options.seed + 1), options.seeds)
    sums = jax.device_get(jax.jit(jax.vmap(one))(states, keys))
    rows = [summarise(env.spec, {k: v[i] for k, v in sums.items()}) for i in range(options.seeds)]
    keep = ("reward", "metric/win", "metric/enemies_left", "metric/length")
    return [{k: row[k] for k in keep} for row in rows]


def page(rows: list[dict]) -> str:
    last = {tuple(row.get(k) for k in ("kind", "map", "source", "estimator")): row for row in rows}
    counted = [row for row in last.values() if row["kind"] == "cost"]
    maps = {row["map"]: row["modes"] for row in counted}
    estimators = dict.fromkeys(row["estimator"] for row in counted)
    header = ["GFLOP of an update", *(f"{name} ({modes} modes)" for name, modes in maps.items())]
    cells = [[e, *(f"{row['flops'] / 1e9:,.1f}" for row in counted if row["estimator"] == e)] for e in estimators]
    texts = [markdown(header, cells)] if counted else []
    learned = [row for row in last.values() if row["kind"] == "learning"]
    header = ["estimator", "map", "steps per seed", "seeds", "CPU s per round", "win % in training, last quarter",
              "win % in evaluation", "enemies left %", "reward per step"]  # fmt: skip
    table = []
    for row in learned:
        quarter = row["history"][-max(len(row["history"]) // 4, 1) :]
        training = 100 * np.mean([h["win"] for h in quarter])
        mean = {k: np.mean([s[k] for s in row["evaluation"]]) for k in row["evaluation"][0]}
        table.append([f"{row['estimator']} ({row['source']})", row["map"], f"{row['env_steps']:,}", str(row["seeds"]),
                      f"{row['round_cpu_s']:.2f}", f"{training:.0f}", f"{100 * mean['metric/win']:.0f}",
                      f"{100 * mean['metric/enemies_left']:.0f}", f"{mean['reward']:.3f}"])  # fmt: skip
    return "\n\n".join([*texts, *([markdown(header, table)] if table else [])])


PARTS = {"cost": cost, "learning": learning}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--estimators", nargs="*", default=list(ESTIMATORS))
    parser.add_argument("--map", default="3m", help="where learning is compared")
    parser.add_argument("--source", default="pathwise")
    parser.add_argument("--episodes", type=int, default=1000, help="training episodes of `horizon` steps per seed")
    parser.add_argument("--battles", type=int, default=128, help="evaluation battles per seed")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=HERE / "estimators.jsonl")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if not options.show:
        with options.out.open("a", encoding="utf-8") as file:
            for part in options.parts:
                for row in PARTS[part](options):
                    row = {"jax": jax.__version__, "seed": options.seed, "load": os.getloadavg()[0]} | row
                    file.write(json.dumps(row) + "\n")
                    file.flush()
    print(page([json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]))


if __name__ == "__main__":
    main()
