"""UAVs of different kinds that share out roles: patrol, scout, relay, return."""

from trident.envs.uav_cruise.config import CruiseConfig
from trident.envs.uav_cruise.env import VARIANTS, UavCruise

__all__ = ["VARIANTS", "CruiseConfig", "UavCruise"]
