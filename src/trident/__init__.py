"""TRIDENT: safe multi-agent reinforcement learning with hybrid actions on physics-governed systems."""

__version__ = "0.1.0"
