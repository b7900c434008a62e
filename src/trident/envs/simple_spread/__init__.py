"""MPE's simple_spread: agents cover landmarks and must not collide."""

from trident.envs.simple_spread.env import VARIANTS, SimpleSpread, SimpleSpreadConfig

__all__ = ["VARIANTS", "SimpleSpread", "SimpleSpreadConfig"]
