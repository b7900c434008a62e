"""The junction in the SMARTS simulator, outside JAX."""
