"""StarCraft micromanagement with hybrid actions."""

from trident.envs.smac.config import MAPS, SmacConfig
from trident.envs.smac.env import DEFAULT, VARIANTS, Smac, describe

__all__ = ["DEFAULT", "MAPS", "VARIANTS", "Smac", "SmacConfig", "describe"]
