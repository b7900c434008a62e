"""Tables, curves and videos from the records of runs. Needs no jax."""
