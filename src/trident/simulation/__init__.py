"""A policy in an environment: rollouts, evaluation and single episodes, in JAX and in simulators outside it."""
