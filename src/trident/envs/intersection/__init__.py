"""Vehicles that cross a junction without traffic lights."""

from trident.envs.intersection.config import IntersectionConfig
from trident.envs.intersection.env import VARIANTS, Intersection

__all__ = ["VARIANTS", "Intersection", "IntersectionConfig"]
