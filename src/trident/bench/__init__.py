"""Measurements of speed: `trident bench speed`."""
