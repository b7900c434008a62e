"""Use a trained policy: load it from its folder, ask it for actions, and drive an episode step by step.

python examples/load_and_act.py
"""

from pathlib import Path

import jax
import numpy as np

import trident

folder = Path("runs/to-load")
if not folder.exists():  # what first_run.py trains
    config = {"envs": 32, "steps": 12, "hidden": (32, 32), "critic_hidden": (64, 64)}
    settings = {"episodes": 400, "seeds": 1, "limits": {"speeding": 0.05}, "eval_episodes": 0}
    trident.train("probe-chain", "mappo-lag", config=config, out=folder, **settings)

# Checkpoints are arrays and JSON, never pickled code: a run can be loaded from anywhere.
run = trident.load(folder)
env, spec = run.setup.env, run.setup.spec

# Observations of all agents in, modes and parameters in physical units out; all of them NumPy arrays.
obs = np.zeros((spec.num_agents, spec.obs_dim), np.float32)
action = run.act(obs)
for agent, (mode, params) in enumerate(zip(*action, strict=True)):
    print(f"agent {agent}: mode {mode}, parameters {params.round(2)}")

# A batch of observations at once, drawn from the policy instead of its most likely actions.
batch = run.act(np.zeros((5, *obs.shape), np.float32), key=jax.random.key(0), deterministic=False)
print("modes of a batch", batch.mode.tolist())

# An episode by hand. In a real system the three arrays of the view come from sensors.
key = jax.random.key(7)
state, seen = env.reset(key)
step = jax.jit(env.step)
print("\nstep  reward  heat  modes")
for t in range(spec.horizon):
    action = run.act(seen.obs, seen.mode_mask, seen.alive)
    key, noise = jax.random.split(key)
    state, seen = step(noise, state, action)
    print(f"{t:4d}  {seen.reward:6.3f}  {seen.cost[0]:4.2f}  {action.mode}")
    if seen.terminated or seen.truncated:
        break
