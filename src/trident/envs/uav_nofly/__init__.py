"""A UAV that crosses an area among polygonal no-fly zones."""

from trident.envs.uav_nofly.config import NoFlyConfig
from trident.envs.uav_nofly.env import VARIANTS, UavNoFly

__all__ = ["VARIANTS", "NoFlyConfig", "UavNoFly"]
