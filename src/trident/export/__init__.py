"""Taking a trained policy out: bundles for `trident.runtime`."""
