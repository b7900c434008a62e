"""A first run: three walkers learn to reach the end of a line without overheating.

    python examples/first_run.py

Everything that is measured, learned and drawn is kept in the folder `out`; training twice in one folder is refused.
"""

import trident

run = trident.train(
    "probe-chain",  # `trident list` shows every environment ...
    "mappo-lag",  # ... and algorithm. "trident" is the default: safer, but it takes longer to compile
    episodes=400,
    seeds=1,  # several seeds are trained side by side and give intervals
    limits={"speeding": 0.05},  # stricter than the environment's own
    config={"envs": 32, "steps": 12, "hidden": (32, 32), "critic_hidden": (64, 64)},  # the other fields: their defaults
    eval_episodes=50,
    out="runs/first",
)

print(run.table())  # the learned policy beside the environment's scripted ones, costs beside their limits
print("\nround  reward  heat")
for record in run.records[::4]:  # one record per round, each value for every seed
    (reward,), (heat,) = record["values"]["reward"], record["values"]["cost/heat"]
    print(f"{record['round']:5d}  {reward:6.3f}  {heat:.2f}")
print("learning curves:", run.out / "figures" / "learning.png")
