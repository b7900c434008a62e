"""Compare algorithms on one environment: train each of them, then one table and one figure of all.

python examples/compare.py
"""

import trident

SETTINGS = {
    "episodes": 400,
    "seeds": 1,  # too few to compare by: intervals need three or more
    "limits": {"speeding": 0.05},
    "config": {"envs": 32, "steps": 12, "hidden": (32, 32), "critic_hidden": (64, 64)},
    "eval_episodes": 50,
}

runs = [trident.train("probe-chain", name, out=f"runs/{name}", **SETTINGS) for name in ("mappo", "mappo-lag")]

# Folders of earlier runs can be compared just as well: trident.compare("runs/mappo", "runs/mappo-lag").
print(trident.compare(*runs, figure="runs/curves.png"))

# What stands in the table, and more, is plain data.
print("\nmethod     reward    heat")
for run in runs:
    name = run.setup.algorithm.name
    (seed,) = run.result["policies"][name]
    print(f"{name:9s} {seed['reward']:7.3f}   {seed['cost/heat']:.3f}")
